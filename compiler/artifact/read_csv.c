/* Reads a schedule as PyTorch's pipelining runtime writes it: a line per rank, actions separated by commas,
 * compute-only or with communication. Ranks, chunks and micro-batches are what the actions name; a chunk lies on the
 * rank of its first action. A cell may be empty (a step in which the rank rests).
 *
 * PyTorch has actions that mean nothing to a pipeline of ours, and they are left out with a note: UNSHARD and RESHARD
 * (parameters that are gathered and dropped again), WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD (a schedule is
 * certified with sends that wait by themselves already). (1F2;0B1)OVERLAP_F_B is read as its parts, one after the
 * other. */
#include <string.h>

#include "artifact/reading.h"

enum { LONGEST_CELL = 400, NOTES = 5 };

typedef VEC(pd_action) Actions;

typedef struct Reader {
  Arena *arena;
  const char *at, *end;
  unsigned line, column; /* of what is read now; from 1 */
  VEC(Actions) ranks;
  Actions *rank; /* being read */
  VEC(unsigned) lines;
  int64_t actions;
  int64_t gathers, waits, overlaps; /* left out, left out, taken apart */
  const char *why;
} Reader;

#define WRONG(reader, ...)                                                                                             \
  do {                                                                                                                 \
    (reader)->why = arena_printf((reader)->arena, "line %u, column %u: %s", (reader)->line, (reader)->column,          \
                                 arena_printf((reader)->arena, __VA_ARGS__));                                          \
    return false;                                                                                                      \
  } while (0)

/* The word between the digits of an action: "UNSHARD" of "3UNSHARD". */
static bool is_word(const char *text, const char *word, bool number_follows) {
  size_t digits = strspn(text, "0123456789"), length = strlen(word);
  if (digits == 0 || digits > 9 || strncmp(text + digits, word, length) != 0) return false;
  const char *rest = text + digits + length;
  size_t more = strspn(rest, "0123456789");
  return rest[more] == 0 && (number_follows ? more > 0 && more <= 9 : more == 0);
}

static bool take_action(Reader *reader, const char *text) {
  pd_action action;
  if (is_word(text, "UNSHARD", false) || is_word(text, "RESHARD", false)) {
    reader->gathers++;
    return true;
  }
  if (is_word(text, "WAIT_SEND_F", true) || is_word(text, "WAIT_SEND_B", true) ||
      is_word(text, "WAIT_REDUCE_GRAD", false)) {
    reader->waits++;
    return true;
  }
  if (is_word(text, "BW", true))
    WRONG(reader, "`%s` is PyTorch's old spelling: BW is written B now, and what was B is written I", text);
  if (!pd_action_parse(text, &action))
    WRONG(reader,
          "`%s` is no action; one is a chunk, F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B and a micro-batch, "
          "like 0F3, or like 0REDUCE_GRAD",
          text);
  if (action.chunk >= DOCUMENT_MOST_CHUNKS)
    WRONG(reader, "`%s` names chunk %d; at most %d are read", text, action.chunk, DOCUMENT_MOST_CHUNKS);
  if (action.microbatch >= DOCUMENT_MOST_MICROBATCHES)
    WRONG(reader, "`%s` names micro-batch %d; at most %d are read", text, action.microbatch,
          DOCUMENT_MOST_MICROBATCHES);
  if (++reader->actions > DOCUMENT_MOST_ACTIONS) WRONG(reader, "more than %d actions", DOCUMENT_MOST_ACTIONS);
  vec_push(reader->arena, reader->rank, action);
  return true;
}

/* "(0F1;1B0)OVERLAP_F_B" */
static bool take_overlap(Reader *reader, char *text) {
  char *close = strchr(text, ')');
  if (!close || strcmp(close, ")OVERLAP_F_B") != 0)
    WRONG(reader, "`%s`: what stands in brackets ends with `)OVERLAP_F_B`", text);
  *close = 0;
  reader->overlaps++;
  for (char *part = text + 1; part;) {
    char *next = strchr(part, ';');
    if (next) *next++ = 0;
    part += strspn(part, " ");
    for (char *last = part + strlen(part); last > part && last[-1] == ' ';) *--last = 0;
    if (!take_action(reader, part)) return false;
    part = next;
  }
  return true;
}

/* One cell, up to a comma or the end of the line. */
static bool take_cell(Reader *reader) {
  const char *begin = reader->at;
  while (reader->at < reader->end && *reader->at != ',' && *reader->at != '\n') {
    unsigned char byte = (unsigned char)*reader->at;
    unsigned column = reader->column + (unsigned)(reader->at - begin);
    bool line_end = byte == '\r' && (reader->at + 1 == reader->end || reader->at[1] == '\n');
    if ((byte < 0x20 && byte != '\t' && !line_end) || byte >= 0x7f) {
      reader->column = column;
      WRONG(reader, "byte 0x%02x has no place in a schedule", byte);
    }
    reader->at++;
  }
  const char *last = reader->at;
  while (begin < last && strchr(" \t", *begin)) begin++, reader->column++;
  while (last > begin && strchr(" \t\r", last[-1])) last--;
  if (last - begin >= 2 && *begin == '"' && last[-1] == '"') begin++, last--, reader->column++;
  if (last - begin > LONGEST_CELL) WRONG(reader, "a cell of %zu bytes", (size_t)(last - begin));
  if (begin == last) return true;
  char *text = arena_strndup(reader->arena, begin, (size_t)(last - begin));
  return *text == '(' ? take_overlap(reader, text) : take_action(reader, text);
}

static bool take_line(Reader *reader) {
  const char *begin = reader->at;
  reader->rank = ARENA_NEW(reader->arena, Actions);
  for (;;) {
    reader->column = (unsigned)(reader->at - begin) + 1;
    if (!take_cell(reader)) return false;
    if (reader->at == reader->end || *reader->at == '\n') break;
    reader->at++;
  }
  if (reader->at < reader->end) reader->at++;
  vec_push(reader->arena, &reader->ranks, *reader->rank);
  vec_push(reader->arena, &reader->lines, reader->line++);
  return true;
}

static bool take_lines(Reader *reader) {
  if (reader->end - reader->at >= 3 && memcmp(reader->at, "\xef\xbb\xbf", 3) == 0) reader->at += 3;
  while (reader->at < reader->end) {
    if (reader->ranks.count > DOCUMENT_MOST_RANKS) WRONG(reader, "more than %d ranks", DOCUMENT_MOST_RANKS);
    if (!take_line(reader)) return false;
  }
  while (reader->ranks.count > 0 && reader->ranks.at[reader->ranks.count - 1].count == 0) reader->ranks.count--;
  if (reader->ranks.count == 0) {
    reader->why = "there are no actions in it";
    return false;
  }
  for (uint32_t rank = 0; rank < reader->ranks.count; rank++)
    if (reader->ranks.at[rank].count == 0) {
      reader->line = reader->lines.at[rank], reader->column = 1;
      WRONG(reader, "rank %u has no actions", rank);
    }
  return true;
}

/* The first half of the chunks does the first half of the micro-batches and the second half the second: what no
 * schedule of one model is, for every chunk of it does all. */
static bool two_copies(const pd_pipeline *pipeline) {
  int half = pipeline->chunk_count / 2;
  if (pipeline->chunk_count % (2 * pipeline->pp) != 0 || pipeline->microbatches % 2 != 0) return false;
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      pd_action action = pipeline->ranks[rank].at[i];
      if (action.microbatch >= 0 && (action.microbatch >= pipeline->microbatches / 2) != (action.chunk >= half))
        return false;
    }
  return true;
}

/* Counts, placement and lists from the actions. */
static const char *build(Reader *reader, pd_pipeline *pipeline) {
  Arena *arena = reader->arena;
  int pp = (int)reader->ranks.count;
  pd_action_list *lists = ARENA_ARRAY(arena, pd_action_list, pp);
  int32_t last_chunk = 0, last_microbatch = 0;
  for (int rank = 0; rank < pp; rank++) {
    lists[rank] = (pd_action_list){reader->ranks.at[rank].at, reader->ranks.at[rank].count};
    for (int64_t i = 0; i < lists[rank].count; i++) {
      if (lists[rank].at[i].chunk > last_chunk) last_chunk = lists[rank].at[i].chunk;
      if (lists[rank].at[i].microbatch > last_microbatch) last_microbatch = lists[rank].at[i].microbatch;
    }
  }
  int count = last_chunk + 1, *rank_of = ARENA_ARRAY(arena, int, count);
  for (int chunk = 0; chunk < count; chunk++) rank_of[chunk] = -1;
  for (int rank = 0; rank < pp; rank++)
    for (int64_t i = 0; i < lists[rank].count; i++)
      if (rank_of[lists[rank].at[i].chunk] < 0) rank_of[lists[rank].at[i].chunk] = rank;
  for (int chunk = 0; chunk < count; chunk++)
    if (rank_of[chunk] < 0)
      return arena_printf(arena, "chunk %d is on no rank: no action names it, and chunk %d is named", chunk,
                          last_chunk);
  if (count % pp != 0) return arena_printf(arena, "%d chunks cannot be dealt evenly to %d ranks", count, pp);
  *pipeline = (pd_pipeline){.pp = pp,
                            .chunk_count = count,
                            .microbatches = (int64_t)last_microbatch + 1,
                            .rank_of = rank_of,
                            .ranks = lists,
                            .copies = 1};
  if (two_copies(pipeline)) pipeline->copies = pipeline->accumulators = 2;
  pipeline->split = actions_split(pipeline);
  return document_check_size(arena, pipeline);
}

static const char *const *notes_of(Reader *reader, const Document *document) {
  const char **notes = ARENA_ARRAY(reader->arena, const char *, NOTES + 1);
  int count = 0;
  if (document->pipeline.copies > 1)
    notes[count++] = "read as two copies of the model, each with half of the micro-batches";
  if (!document->messages) notes[count++] = "it holds computations only; messages were added";
  if (reader->gathers)
    notes[count++] =
        arena_printf(reader->arena, "%lld UNSHARD and RESHARD left out: they move parameters, not micro-batches",
                     (long long)reader->gathers);
  if (reader->waits)
    notes[count++] = arena_printf(
        reader->arena, "%lld WAIT actions left out: a certified schedule stands sends that wait by themselves",
        (long long)reader->waits);
  if (reader->overlaps)
    notes[count++] = arena_printf(reader->arena, "%lld OVERLAP_F_B read as their parts, one after the other",
                                  (long long)reader->overlaps);
  return notes;
}

const char *schedule_read_csv(Arena *arena, const char *text, size_t length, Document *document) {
  Reader reader = {.arena = arena, .at = text, .end = text + length, .line = 1};
  *document = (Document){.form = DOCUMENT_CSV, .kind = "imported", .unit = ""};
  if (!take_lines(&reader)) return reader.why;
  const char *why = build(&reader, &document->pipeline);
  if (why) return why;
  document->chunks = document->pipeline.chunk_count / document->pipeline.pp / document->pipeline.copies;
  document->messages = actions_have_messages(&document->pipeline);
  document->notes = notes_of(&reader, document);
  document_set_costs(arena, document, (ShareCosts){1, 1, 1, 0});
  return NULL;
}
