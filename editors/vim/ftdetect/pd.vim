" .pd files are programs of pdc.
autocmd BufRead,BufNewFile *.pd setfiletype pd
