/* What the readers of pd-schedule, pd-plan and CSV share. Functions that can fail return NULL or what is wrong, with
 * its path. */
#ifndef PDC_ARTIFACT_READING_H
#define PDC_ARTIFACT_READING_H

#include "artifact/document.h"
#include "artifact/json_shape.h"

double json_number_at(const json_t *object, const char *key);
/* `array` must have `count` elements. */
const char *count_check(Arena *arena, const json_t *array, const char *path, int64_t count, const char *because);
/* The keys of times end in `suffix`, `peak` is the key of the peaks. */
const Claims *claims_read(Arena *arena, const json_t *certificate, const char *suffix, const char *peak);
/* Actions as pd_action_text spells them, within the pipeline's chunks and micro-batches. */
const char *actions_read(Arena *arena, const json_t *texts, const char *path, const pd_pipeline *pipeline,
                         pd_action_list *list);
/* Sets pp, chunk_count, rank_of, and what the kind says: copies, step and delay. A kind that this version does not
 * generate has one copy and a flush. */
const char *placement_read(Arena *arena, const json_t *placement, const char *path, const char *kind, int pp,
                           int chunks, pd_pipeline *pipeline);
/* Some backward is split. */
bool actions_split(const pd_pipeline *pipeline);
/* The lists hold messages, or all neighbouring chunks share a rank. */
bool actions_have_messages(const pd_pipeline *pipeline);
/* Costs that a run can be measured with: finite sums, and some time passes. */
const char *costs_refuse(Arena *arena, ShareCosts costs);

#endif
