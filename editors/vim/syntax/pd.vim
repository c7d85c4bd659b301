" Colours of programs of pdc.
if exists('b:current_syntax')
  finish
endif

syntax keyword pdKeyword import as const config dim block model
syntax keyword pdStatement param frozen repeat if else return loss metric
syntax keyword pdBoolean true false on off
syntax keyword pdType i32 f32 f64 bf16
syntax match pdEdition /\%^\s*pd\ze\s\+\d/

syntax keyword pdOperation relu silu sigmoid tanh exp log sqrt gelu layernorm rmsnorm softmax dropout rope gather sdpa transpose
      \ reshape concat split slice sum mean max min einsum xent accuracy mse conv2d maxpool avgpool batchnorm roundup log2 floor
syntax keyword pdInitialiser normal uniform kaiming xavier
syntax match pdCall /\<\h\w*\%(\.\h\w*\)*\ze(/ contains=pdOperation,pdInitialiser,pdKeyword,pdStatement
syntax match pdDeclared /\%(\<\%(block\|model\)\s\+\)\@<=\h\w*/

syntax match pdNumber /\<\d\+\%(\.\d\+\)\?\%([eE][+-]\?\d\+\)\?\%([KMBT]\|[KMG]iB\)\?\>/
syntax match pdNumber /\%(\w\|\.\)\@<!\.\d\+\%([eE][+-]\?\d\+\)\?\>/
" a word that begins with a digit and is no number is a name: 1f1b
syntax match pdWord /\<\d\+\a\w*\>/
syntax match pdNumber /\<\d\+\%([eE]\d\+\|[KMBT]\|[KMG]iB\)\>/
syntax region pdString start=/"/ skip=/\\./ end=/"/ oneline contains=pdEscape
syntax match pdEscape /\\[nrt"\\]/ contained

syntax match pdOperator /->\||>\|\.\.\|[-+*/%@!=]=\?\|&&\|||\|<=\|>=/
" sections: how, not what
syntax match pdSection /^\s*\zs\%(parallel\|shard\|schedule\|optimizer\|precision\|data\|train\|checkpoint\|cluster\)\ze\s*</
syntax match pdKey /\%([<;]\s*\|^\s*\)\@<=\h\w*\%(\.\h\w*\)*\ze=[^=]/

syntax match pdComment +//.*$+ contains=pdTodo,@Spell
syntax keyword pdTodo TODO FIXME XXX contained

highlight default link pdKeyword Keyword
highlight default link pdStatement Statement
highlight default link pdBoolean Boolean
highlight default link pdType Type
highlight default link pdEdition PreProc
highlight default link pdOperation Function
highlight default link pdInitialiser Function
highlight default link pdCall Function
highlight default link pdDeclared Identifier
highlight default link pdNumber Number
highlight default link pdWord Constant
highlight default link pdString String
highlight default link pdEscape SpecialChar
highlight default link pdOperator Operator
highlight default link pdSection PreProc
highlight default link pdKey Identifier
highlight default link pdComment Comment
highlight default link pdTodo Todo

let b:current_syntax = 'pd'
