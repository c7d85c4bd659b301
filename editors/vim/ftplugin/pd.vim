" Comments, words and formatting in programs of pdc. Copy this directory into ~/.vim (or ~/.config/nvim).
if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1

setlocal comments=:// commentstring=//\ %s
setlocal expandtab shiftwidth=2 softtabstop=2 textwidth=110
setlocal suffixesadd=.pd include=^\\s*import
" gq formats the whole file as `pdc fmt` does
if executable('pdc')
  setlocal formatprg=pdc\ fmt\ -
  setlocal makeprg=pdc\ check\ --diagnostics=short\ %:S
  setlocal errorformat=%f:%l:%c:\ %trror[E%n]:\ %m,%f:%l:%c:\ %tarning[W%n]:\ %m
endif

let b:undo_ftplugin = 'setlocal comments< commentstring< expandtab< shiftwidth< softtabstop< textwidth< suffixesadd< include<'
      \ . ' formatprg< makeprg< errorformat<'
