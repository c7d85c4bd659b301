/* A schedule or plan by itself: made here or read from a file, measured, certified, compared and drawn. */
#ifndef PDC_ARTIFACT_DOCUMENT_H
#define PDC_ARTIFACT_DOCUMENT_H

#include <jansson.h>

#include "pipeline/pipeline.h"

typedef enum DocumentForm { DOCUMENT_SCHEDULE, DOCUMENT_PLAN, DOCUMENT_CSV } DocumentForm;

/* Times of one micro-batch through one rank's whole share of the model, and of one hop. */
typedef struct ShareCosts {
  double f, i, w, link;
} ShareCosts;

/* What a file claims about its schedule. */
typedef struct Claims {
  Certificate certificate;
  double makespan, beta, sigma, bound;
  const double *idle, *peak; /* per rank; peak in micro-batches, of a plan in bytes */
} Claims;

typedef struct Document {
  DocumentForm form;
  const char *kind; /* of schedule; "imported" for a CSV */
  pd_pipeline pipeline;
  int chunks;          /* per rank */
  bool messages;       /* the lists hold them, or none are needed */
  const char *unit;    /* of time: "ns", or "" */
  ShareCosts costs;    /* of a schedule, as stated */
  ScheduleCosts times; /* per chunk, multiplied by `scale`: whole numbers wherever the costs are decimal */
  double scale;
  const Claims *claims;      /* NULL: the file makes none */
  const char *const *notes;  /* what was left out or read otherwise; NULL-terminated */
  const double *chunk_bytes; /* of a plan: what one micro-batch keeps alive in a chunk, per chunk; else NULL */
  const double *reductions;  /* of a plan: predicted times of reducing a chunk's gradients, per chunk; else NULL */
  json_t *root;              /* of a JSON file */
} Document;

enum {
  DOCUMENT_MOST_BYTES = 64 << 20,
  DOCUMENT_MOST_ACTIONS = 2 << 20,
  DOCUMENT_MOST_RANKS = 4096,
  DOCUMENT_MOST_CHUNKS = 65536,
  DOCUMENT_MOST_MICROBATCHES = 1 << 24
};

/* Reads any of the three forms, told apart by their first byte. NULL, or what is wrong with its path or line and
 * column. Release with document_free. */
const char *document_read(Arena *arena, const char *text, size_t length, Document *document);
const char *schedule_read_json(Arena *arena, const char *text, size_t length, Document *document);
const char *schedule_read_csv(Arena *arena, const char *text, size_t length, Document *document);
const char *plan_read(Arena *arena, const char *text, size_t length, Document *document);
void document_free(Document *document);

/* A compute-only schedule that was just made; messages are added where these costs want them. */
void document_adopt(Arena *arena, const char *kind, const pd_pipeline *pipeline, int chunks, ShareCosts costs,
                    Document *document);
/* The schedule that `kind` generates, with messages. */
void document_generate(Arena *arena, const ScheduleKind *kind, const ScheduleRequest *request, ShareCosts costs,
                       Document *document);
/* Sets costs and times; a chunk takes 1 / chunks of them. */
void document_set_costs(Arena *arena, Document *document, ShareCosts costs);
/* The same for a document that was read: what it claimed under its own costs and bytes is forgotten, and a plan is from
 * now on a schedule. Its root stays. */
void document_state_costs(Arena *arena, Document *document, ShareCosts costs);

/* NULL if every (chunk, micro-batch) can be there: what certifying takes in memory stays within what the lists are.
 * Else which one is missing. */
const char *document_check_size(Arena *arena, const pd_pipeline *pipeline);

typedef struct Measure {
  Certificate certificate;
  const char *why;                     /* first thing that is wrong; NULL: certified */
  double makespan, beta, sigma, bound; /* these and below only if certified */
  double *idle, *peak;                 /* per rank; peak in micro-batches of the rank's share, of a plan in bytes */
  double *start, *end;                 /* per action, flattened in rank order */
  int64_t *first_of;                   /* per rank: where its actions begin; pp + 1 entries */
} Measure;
/* Certifies and measures; a compute-only schedule gets its messages first. */
void document_measure(Arena *arena, Document *document, Measure *measure);
/* NULL if what the file claims is what was measured, else which claim is wrong. */
const char *document_check_claims(Arena *arena, const Document *document, const Measure *measure);
/* What chunk `chunk` holds from F to the end of B or W: in micro-batches of a rank's share, or of a plan in bytes. */
double document_weight(const Document *document, int chunk);
/* The most that a rank holds at once, in the same unit. */
double document_peak(const Document *document, int rank);

/* The pd-schedule, version 1. The document is measured and certified. */
void schedule_write_json(const Document *document, const Measure *measure, Text *out);

/* What differs, in a person's words, a line each. True if nothing does. */
bool document_diff(Arena *arena, const Document *a, const Document *b, Text *out);

#endif
