/* A pipeline as PyTorch's pipelining schedules read and write it: one line per rank, its actions separated by commas.
 */
#include <string.h>

#include "artifact/artifact.h"

void schedule_write_csv(const pd_pipeline *pipeline, Text *out) {
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *list = &pipeline->ranks[rank];
    for (int64_t i = 0; i < list->count; i++) {
      char name[48];
      pd_action_text(list->at[i], name);
      if (i > 0) text_put(out, ",", 1);
      text_put(out, name, strlen(name));
    }
    text_put(out, "\n", 1);
  }
}
