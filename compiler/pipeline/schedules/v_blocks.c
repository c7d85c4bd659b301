/* Schedules made of one block repeated (Qi et al. 2024, pipeline parallelism with controllable memory): two chunks a
 * rank in a V, and for micro-batch 0 a slot of unit time for each of its passes on each rank such that the same slots,
 * 6 later for every further micro-batch, never collide. What a block leaves free takes the weight gradients, each in
 * the first free slot after its input gradient; a fused backward takes two slots in a row instead.
 *
 * That is full in the middle and has holes at both ends. The squeeze goes over all slots in order of time and moves
 * each pass to the earliest slot that what it needs allows: a free one, or one of a weight gradient, which then goes to
 * the next free slot. A forward moves only as far as the rank then nowhere holds more than the most that was held
 * before. Weight gradients of a rank are done in the order of its input gradients, so the table need not tell them
 * apart.
 *
 * While the squeeze is at a slot, what it has seen lies at or before a rank's frontier, what it has not seen at or
 * after the slot, and nothing between; so a move costs no more than the passes it overtakes. */
#include "pipeline/schedules/kinds.h"

enum { PERIOD = 6, SLACK = 16 };
typedef enum Mark { FREE, FORWARD, BACKWARD, WEIGHT, REST /* second slot of a fused backward */ } Mark;

typedef struct Cell {
  uint8_t mark, pass; /* pass: as in the block */
  int32_t microbatch;
  int32_t held;    /* activations on the rank during this slot, */
  int32_t waiting; /* and input gradients before it whose weight gradient is not: both up to the frontier */
} Cell;

typedef struct Line {    /* a rank while it is squeezed */
  int64_t cap;           /* most activations it may hold */
  int64_t frontier;      /* its last slot that is taken by what was seen */
  int32_t held, waiting; /* after the frontier */
} Line;

typedef struct Table {
  int pp;
  int64_t microbatches, slots;
  bool split;
  Cell *cells;     /* per rank, per slot */
  int64_t *placed; /* per pass, rank and micro-batch: its slot */
  Line *lines;     /* per rank */
} Table;

static Cell *row(const Table *table, int rank) {
  return &table->cells[rank * table->slots];
}

static int64_t *place_of(const Table *table, int pass, int rank, int64_t microbatch) {
  return &table->placed[(pass * table->pp + rank) * table->microbatches + microbatch];
}

static void put_pass(Table *table, int pass, int rank, int64_t microbatch, int64_t slot) {
  Cell *cell = &row(table, rank)[slot];
  cell->mark = pass <= V_F1 ? FORWARD : BACKWARD;
  cell->pass = (uint8_t)pass;
  cell->microbatch = (int32_t)microbatch;
  if (cell->mark == BACKWARD && !table->split) cell[1].mark = REST;
  *place_of(table, pass, rank, microbatch) = slot;
}

/* Weight gradients into the first free slots, and the most activations that are held then. */
static void fill_row(Table *table, int rank) {
  Cell *cells = row(table, rank);
  int64_t held = 0, waiting = 0, most = 0;
  for (int64_t s = 0; s < table->slots; s++) {
    if (cells[s].mark == FREE && waiting > 0) cells[s].mark = WEIGHT;
    Mark mark = (Mark)cells[s].mark;
    held += mark == FORWARD;
    if (held > most) most = held;
    held -= mark == WEIGHT || mark == REST;
    waiting += (mark == BACKWARD && table->split) - (mark == WEIGHT);
  }
  table->lines[rank] = (Line){.cap = most, .frontier = -1};
}

static Table lay_out(Arena *arena, const ScheduleRequest *request, const VBlock *blocks, bool split) {
  Table table = {.pp = request->pp, .microbatches = request->microbatches, .split = split};
  int64_t last = 0;
  for (int rank = 0; rank < table.pp; rank++)
    if (blocks[rank].slot[V_B0] > last) last = blocks[rank].slot[V_B0];
  /* two slots of six are free for the two weight gradients of six slots, so few are left behind the last pass */
  table.slots = last + PERIOD * (table.microbatches - 1) + SLACK;
  table.cells = ARENA_ARRAY(arena, Cell, table.pp * table.slots);
  table.placed = ARENA_ARRAY(arena, int64_t, V_PASSES * table.pp * table.microbatches);
  table.lines = ARENA_ARRAY(arena, Line, table.pp);
  for (int rank = 0; rank < table.pp; rank++) {
    for (int64_t i = 0; i < table.microbatches; i++)
      for (int pass = 0; pass < V_PASSES; pass++) put_pass(&table, pass, rank, i, blocks[rank].slot[pass] + PERIOD * i);
    fill_row(&table, rank);
  }
  return table;
}

/* The slot after what a pass needs, and after the same pass of the micro-batch before. */
static int64_t earliest(const Table *table, int pass, int rank, int64_t microbatch) {
  int64_t length = pass > V_F1 && !table->split ? 2 : 1, from = 0;
  int last = table->pp - 1, source_rank = rank, source = pass;
  bool down = pass == V_F0 || pass == V_B1; /* from rank 0 to the last one */
  if (microbatch > 0) from = *place_of(table, pass, rank, microbatch - 1) + length;
  if (down && rank > 0)
    source_rank--;
  else if (!down && rank < last)
    source_rank++;
  else
    source--; /* where the V turns, and at its ends: what the pass before it made on this rank */
  if (source < 0) return from;
  int64_t ready = *place_of(table, source, source_rank, microbatch) + (source > V_F1 ? length : 1);
  return ready > from ? ready : from;
}

/* What changes from `slot` on when a mark is put there (or, with sign -1, taken away). */
static void count_mark(Table *table, int rank, Mark mark, int64_t slot, int32_t sign) {
  Cell *cells = row(table, rank);
  Line *line = &table->lines[rank];
  int32_t more_held = mark == FORWARD ? sign : mark == WEIGHT || mark == REST ? -sign : 0;
  int32_t more_waiting = !table->split ? 0 : mark == BACKWARD ? sign : mark == WEIGHT ? -sign : 0;
  if (mark == FORWARD) cells[slot].held += sign; /* an activation is there during its forward; the rest is afterwards */
  for (int64_t t = slot + 1; t <= line->frontier; t++) {
    cells[t].held += more_held;
    cells[t].waiting += more_waiting;
  }
  line->held += more_held;
  line->waiting += more_waiting;
}

static void put_mark(Table *table, int rank, Mark mark, int64_t slot) {
  Cell *cells = row(table, rank);
  Line *line = &table->lines[rank];
  for (; line->frontier < slot; line->frontier++) {
    cells[line->frontier + 1].held = line->held;
    cells[line->frontier + 1].waiting = line->waiting;
  }
  cells[slot].mark = (uint8_t)mark;
  count_mark(table, rank, mark, slot, 1);
}

/* Where a pass can go: `to`, and a weight gradient that is there to `moved_to`, or -1. */
typedef struct Move {
  int64_t to, moved_to;
} Move;

/* Goes back from the frontier, so that the memory of a forward, which rises all the way, is known at each step. */
static Move find_move(const Table *table, int rank, Mark mark, int64_t low) {
  const Cell *cells = row(table, rank);
  const Line *line = &table->lines[rank];
  int32_t more = mark == FORWARD;
  int64_t next_free = line->frontier + 1;              /* the nearest free slot above */
  int64_t most = line->held + more;                    /* held in the slots up to there, with the forward moved */
  Move move = {low > next_free ? low : next_free, -1}; /* there is room behind the frontier */
  for (int64_t t = line->frontier; t >= low; t--) {
    if (mark == FORWARD && cells[t].held + 1 > line->cap) break;
    if (cells[t].mark == FREE) {
      move = (Move){t, -1};
      next_free = t;
      most = 0;
    } else if (cells[t].mark == WEIGHT && most + 1 <= line->cap) {
      move = (Move){t, next_free};
    }
    if (cells[t].held + more > most) most = cells[t].held + more;
  }
  return move;
}

static void move_pass(Table *table, int rank, Cell cell) {
  int64_t low = earliest(table, cell.pass, rank, cell.microbatch);
  Move move = find_move(table, rank, (Mark)cell.mark, low);
  if (move.moved_to >= 0) {
    count_mark(table, rank, WEIGHT, move.to, -1);
    put_mark(table, rank, WEIGHT, move.moved_to);
  }
  put_mark(table, rank, (Mark)cell.mark, move.to);
  put_pass(table, cell.pass, rank, cell.microbatch, move.to);
}

/* A fused backward needs two free slots. */
static void move_fused(Table *table, int rank, Cell cell) {
  const Cell *cells = row(table, rank);
  int64_t to = earliest(table, cell.pass, rank, cell.microbatch), frontier = table->lines[rank].frontier;
  while (to <= frontier && (cells[to].mark != FREE || (to < frontier && cells[to + 1].mark != FREE))) to++;
  put_mark(table, rank, BACKWARD, to);
  put_mark(table, rank, REST, to + 1);
  put_pass(table, cell.pass, rank, cell.microbatch, to);
}

/* Not past another weight gradient: that one would have taken the slot. */
static void move_weight(Table *table, int rank) {
  const Cell *cells = row(table, rank);
  int64_t to = table->lines[rank].frontier + 1;
  for (int64_t t = to - 1; t >= 0 && cells[t].waiting > 0 && cells[t].mark != WEIGHT; t--)
    if (cells[t].mark == FREE) to = t;
  put_mark(table, rank, WEIGHT, to);
}

static void squeeze(Table *table) {
  for (int64_t slot = 0; slot < table->slots; slot++)
    for (int rank = 0; rank < table->pp; rank++) {
      Cell *at = &row(table, rank)[slot], cell = *at;
      if (slot <= table->lines[rank].frontier || cell.mark == FREE) continue; /* nothing, or the rest of a backward */
      at->mark = FREE;
      if (cell.mark == WEIGHT)
        move_weight(table, rank);
      else if (cell.mark == FORWARD || table->split)
        move_pass(table, rank, cell);
      else {
        at[1].mark = FREE;
        move_fused(table, rank, cell);
      }
    }
}

static void read_list(Arena *arena, const Table *table, int rank, pd_action_list *list) {
  const Cell *cells = row(table, rank);
  int64_t chunk_of[] = {rank, 2 * table->pp - 1 - rank, 2 * table->pp - 1 - rank, rank};
  actions_reserve(arena, list, 6 * table->microbatches);
  int64_t weight = 0; /* slot of the input gradient whose weight gradient comes next, or before it */
  for (int64_t s = 0; s < table->slots; s++) {
    const Cell *cell = &cells[s];
    if (cell->mark == FORWARD)
      action_put(list, PD_F, chunk_of[cell->pass], cell->microbatch);
    else if (cell->mark == BACKWARD)
      action_put(list, table->split ? PD_I : PD_B, chunk_of[cell->pass], cell->microbatch);
    else if (cell->mark == WEIGHT) {
      while (cells[weight].mark != BACKWARD) weight++;
      action_put(list, PD_W, chunk_of[cells[weight].pass], cells[weight].microbatch);
      weight++;
    }
  }
}

void generate_v_blocks(Arena *arena, const ScheduleRequest *request, const VBlock *blocks, bool split,
                       pd_action_list *ranks) {
  Table table = lay_out(arena, request, blocks, split);
  int64_t most = 0;
  for (int rank = 0; rank < table.pp; rank++)
    if (table.lines[rank].cap > most) most = table.lines[rank].cap;
  /* a fused block keeps ranks apart by one activation, for no gain: there the largest counts */
  for (int rank = 0; rank < table.pp && !split; rank++) table.lines[rank].cap = most;
  squeeze(&table);
  for (int rank = 0; rank < table.pp; rank++) read_list(arena, &table, rank, &ranks[rank]);
}
