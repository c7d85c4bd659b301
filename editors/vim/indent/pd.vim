" Indentation of programs of pdc, as `pdc fmt` lays them out: two columns in a body; what continues a section stands
" below its first key, what continues a bracket below its first element, and what continues a unit four columns in.
if exists('b:did_indent')
  finish
endif
let b:did_indent = 1

setlocal indentexpr=PdIndent(v:lnum)
setlocal indentkeys=0},!^F,o,O
let b:undo_indent = 'setlocal indentexpr< indentkeys<'

if exists('*PdIndent')
  finish
endif

" The line without strings and comment, so that brackets in them do not count.
function s:Code(line) abort
  return substitute(substitute(getline(a:line), '"\%(\\.\|[^"\\]\)*"', '""', 'g'), '//.*$', '', '')
endfunction

" The last line before this one that has code on it.
function s:Before(line) abort
  let line = prevnonblank(a:line - 1)
  while line > 0 && s:Code(line) =~# '^\s*$'
    let line = prevnonblank(line - 1)
  endwhile
  return line
endfunction

" The column after the innermost `(`, `[` or `<` of a section that the lines leave open, with the blanks after it; or -1.
function s:Open(first, last) abort
  let stack = []
  for line in range(a:first, a:last)
    let code = s:Code(line)
    for at in range(strlen(code))
      let char = code[at]
      if char =~# '[([]' || (char ==# '<' && code[: at] =~# '^\s*\h\w*\s*<$')
        call add(stack, at + 1 + strlen(matchstr(code, '^\s*', at + 1)))
      elseif !empty(stack) && (char =~# '[])]' || (char ==# '>' && code[: at] =~# '\%(^\|[;<]\)\s*>$'))
        call remove(stack, -1)
      endif
    endfor
  endfor
  return empty(stack) ? -1 : stack[-1]
endfunction

" The first line of the unit (item, statement) that a line belongs to.
function s:First(line) abort
  let first = a:line
  while first > 1
    let above = s:Before(first)
    if above == 0 || s:Code(above) =~# '[;{}>]\s*$'
      break
    endif
    let first = above
  endwhile
  return first
endfunction

function PdIndent(lnum) abort
  let before = s:Before(a:lnum)
  if before == 0
    return 0
  endif
  " brackets are counted from the last line that begins in the first column: an item
  let item = before
  while item > 1 && getline(item) !~# '^[^[:blank:]/]'
    let item -= 1
  endwhile
  let open = s:Open(item, before)
  if open >= 0
    return open
  endif
  let first = s:First(before)
  let code = s:Code(before)
  if code !~# '[;{}>]\s*$'
    " lists of declarations go on below their first element
    let head = matchstr(getline(first), '^\s*\%(config\s\+const\|const\|dim\|frozen\s\+param\|param\)\s\+')
    return empty(head) ? indent(first) + 4 : strlen(head)
  endif
  let indent = indent(first)
  if code =~# '>\s*$'
    let indent = indent(item)
  elseif code =~# '{\s*$'
    let indent += 2
  endif
  return max([indent - (s:Code(a:lnum) =~# '^\s*}' ? 2 : 0), 0])
endfunction
