/* Between sections.c (the table of keys, and their values), defines.c (-D) and config.c (the Config). */
#ifndef PDC_SEMANTIC_SECTIONS_H
#define PDC_SEMANTIC_SECTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "semantic/internal.h"

#define NOWHERE SIZE_MAX /* a key that the Config has no place for, or a span nobody asks for */

typedef enum KeyType {
  KEY_INT,    /* int64_t */
  KEY_REAL,   /* double */
  KEY_BOOL,   /* bool */
  KEY_CHOICE, /* an enum: the position in `choices` */
  KEY_NAME,   /* const char *: one of choices */
  KEY_TEXT,   /* const char * */
  KEY_PAIR,   /* two doubles */
  KEY_RATE    /* the learning rate */
} KeyType;

typedef struct KeyRow {
  const char *section, *key;
  KeyType type;
  const char *initial; /* default, as written; NULL: none */
  size_t place, span;  /* in the Config */
  double low, high;
  const char *choices;
} KeyRow;

extern const KeyRow key_rows[];
extern const int key_count;

/* Index of a section or a key, or -1. */
int section_index(const char *name);
int row_index(const char *section, const char *key);
/* "parallel.tp" */
const char *dotted_name(Sem *sem, const KeyRow *row);
/* Whether the key may be `*`: left to the launch. */
bool may_be_open(const KeyRow *row);
int choice_index(const char *choices, const char *text);
/* Reports that a value is not `why`. */
Const key_error(Sem *sem, const KeyRow *row, const Expr *value, const char *why);
Const number_key(Sem *sem, const KeyRow *row, const Expr *value);
Const default_const(const KeyRow *row);
Const key_const(Sem *sem, int index);
/* `data.train.NAME` and `data.valid.NAME`: a file per input of the model. */
bool is_data_file(const char *section, const char *key);
void read_binding(Sem *sem, const char *section, const Name *name, const Expr *value, bool override);

#endif
