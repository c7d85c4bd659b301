/* Pictures of a certified schedule: SVG, an HTML page, a Chrome trace, text for a terminal. */
#ifndef PDC_ARTIFACT_DRAW_H
#define PDC_ARTIFACT_DRAW_H

#include "artifact/document.h"

void draw_svg(Arena *arena, const Document *document, const Measure *measure, Text *out);
void draw_html(Arena *arena, const Document *document, const Measure *measure, Text *out);
void draw_trace(Arena *arena, const Document *document, const Measure *measure, Text *out);
/* Lines of at most `columns` characters (40 or more); time goes on below where it does not fit. */
void draw_text(Arena *arena, const Document *document, const Measure *measure, int columns, Text *out);

/* ---- what the pictures share ---- */

typedef struct Box { /* one computation */
  pd_action action;
  int rank, local; /* local: which of its rank's chunks, from 0 in the order of chunks */
  double start, end;
  double before, held; /* what the rank holds before it, and while it runs */
} Box;
typedef struct Link { /* one message, from the end of what makes it to the start of what reads it */
  pd_action action;   /* the SEND */
  int from, to;
  double start, end;
  double middle; /* of what makes it */
} Link;
typedef struct Reduction { /* of a chunk's gradients over replicas; it runs beside the rank's list */
  pd_action action;
  int rank;
  double start, end; /* the same where nobody says how long it takes */
} Reduction;
typedef struct Picture {
  Arena *arena;
  const Document *document;
  const Measure *measure;
  Box *boxes;           /* rank by rank, in order */
  int64_t *box_of_rank; /* pp + 1 entries */
  Link *links;
  int64_t link_count;
  Reduction *reductions; /* rank by rank, in order */
  int64_t reduction_count;
  double end;       /* of the last computation or reduction */
  double most_held; /* by any rank */
  int most_local;   /* most chunks on a rank */
} Picture;
void picture_make(Arena *arena, const Document *document, const Measure *measure, Picture *picture);

/* "zb-v, 4 ranks x 2 chunks, 8 micro-batches" */
const char *picture_title(const Picture *picture);
/* "F = 1, I = 1, W = 1, link = 0"; of a plan what its times come from */
const char *picture_costs(const Picture *picture);
/* "4.5 micro-batches", "3.2 MiB" */
const char *picture_held(const Picture *picture, double held);
/* "forward", "input gradient" … */
const char *action_words(pd_action_kind kind);
/* Text with the characters that XML reserves replaced. */
void xml_put(Text *out, const char *text);

/* The drawing itself; `for_page`: of the HTML page, with memory curves and data for the pointer instead of titles. */
void svg_put(const Picture *picture, bool for_page, Text *out);

#endif
