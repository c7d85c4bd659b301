/* Figures as people read them. */
#ifndef PDC_ARTIFACT_WORDS_H
#define PDC_ARTIFACT_WORDS_H

#include "support/arena.h"

/* At most six digits: "25.5", "0.333333". */
const char *number_words(Arena *arena, double value);
/* unit "ns": "1.25 ms"; else the number. */
const char *time_words(Arena *arena, double time, const char *unit);
/* "1.5 MiB" */
const char *bytes_words(Arena *arena, double bytes);
/* "1 rank", "3 ranks" */
const char *count_words(Arena *arena, int64_t count, const char *one);

#endif
