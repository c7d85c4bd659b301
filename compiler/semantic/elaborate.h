/* Between elaborate.c (statements), params.c, loops.c and blocks.c (calls). */
#ifndef PDC_SEMANTIC_ELABORATE_H
#define PDC_SEMANTIC_ELABORATE_H

#include "semantic/internal.h"

void exec_list(Sem *sem, Frame *frame, Stmt *const *body, uint32_t count);
void exec_repeat(Sem *sem, Frame *frame, const Stmt *stmt);
void declare_params(Sem *sem, Frame *frame, const Stmt *stmt);
/* Binds a name; reports when it already means something that cannot be assigned. */
void bind_local(Sem *sem, Frame *frame, const Name *name, Val value);
/* True when statements stand directly in the model, where each is a segment of its own. */
bool at_top(const Sem *sem, const Frame *frame);
/* The next operation starts a new segment of this name. */
void begin_segment(Sem *sem, const char *name, Span span);
bool type_dtype(Sem *sem, const TypeExpr *type, DType *dtype);
/* Holds a value against a type in two passes: dims that are plain sizes of the block (which binds them), then the
 * others. */
bool match_type(Sem *sem, Frame *frame, const TypeExpr *type, Id value, Span span, const char *what, const char *code,
                bool plain_names);

#endif
