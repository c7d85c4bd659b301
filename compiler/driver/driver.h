/* The command `pdc`: options, the page of passes, the C compiler. */
#ifndef PDC_DRIVER_DRIVER_H
#define PDC_DRIVER_DRIVER_H

#include "semantic/semantic.h"

#define PDC_VERSION "pdc 0.1.0"

enum { EXIT_OK = 0, EXIT_PROGRAM = 1, EXIT_USAGE = 2, EXIT_CC = 3, EXIT_INTERNAL = 70 };

typedef enum EmitKind {
  EMIT_PROGRAM, EMIT_CHECK, EMIT_C, EMIT_AST, EMIT_IR, EMIT_JSON, EMIT_DOT, EMIT_SHARDING, EMIT_PLAN, EMIT_SCHEDULE, EMIT_MEMORY,
  EMIT_DEPENDENCIES, EMIT_CONFIG, EMIT_SVG, EMIT_HTML, EMIT_TRACE
} EmitKind;

typedef struct WarningSwitch { /* -Wname, -Wno-name, in command-line order */
  const char *code; /* NULL: all */
  bool on;
} WarningSwitch;

typedef struct Options {
  const char *input, *output; /* "-": standard input, output; output NULL: the default name */
  EmitKind emit;
  const char *model;
  VEC(Define) defines;
  VEC(const char *) import_dirs;
  DiagFormat diagnostics;
  const char *color; /* auto, always, never */
  const char *cc, *cxx;
  bool print_c; /* EMIT_C: to standard output, not into a file */
  bool verbose, show_commands, save_temps, warnings_are_errors, debug;
  VEC(WarningSwitch) warnings;
  bool dependencies;           /* -MD */
  const char *dependency_file; /* -MF, or NULL */
  const char *optimize; /* "-O3" */
  Target target;
  bool target_given;
  VEC(const char *) archs; /* --arch: "90", "100a"; none: the default ones */
  bool no_mpi;             /* a CUDA program of one process */
  AttentionChoice attention; /* --attention */
  bool any_order;            /* --nondeterministic */
  bool nvrtc;              /* --cuda-compiler=nvrtc */
  const char *cuda_option; /* an option that only the cuda target has, as it was given; NULL: none */
} Options;

/* Parses the command line. Returns -1 to go on, or the exit status of a command that is done (--help, an error). */
int options_parse(Arena *arena, int argc, char **argv, Options *options);
/* What --help prints. */
void options_help(void);

/* The whole compile as a page of passes. Returns the exit status. */
int compile(Arena *arena, const Options *options);

/* `pdc fmt …` and `pdc lsp …`: argv[0] is the command's name. Each returns the exit status. */
int fmt_command(Arena *arena, int argc, char **argv);
int lsp_command(Arena *arena, int argc, char **argv);

/* What -I gives, then the installed library. */
const char *const *import_dirs(Arena *arena, const Options *options, uint32_t *count);
/* Whether diagnostics on standard error are coloured: `when` is auto, always or never. */
bool use_color(const char *when);
/* The files that a program is made of as a rule for make: `target: FILE …`. */
struct Compilation;
void dependencies_text(const struct Compilation *c, const Options *options, const char *target, Text *out);

/* Where the library that programs link with lies: …/lib/pdc. NULL if it cannot be found. */
const char *toolchain_library(Arena *arena);
/* Builds the program from what passes_emit made: its sources, and its plan or plans. Returns an exit status. */
int toolchain_build(const Options *options, const char *name, const struct Compilation *c, const char *output);
/* Where the CUDA toolkit lies: $CUDA_HOME, beside the nvcc of PATH, or /usr/local/cuda. */
const char *toolchain_cuda(Arena *arena);
/* cuda where a driver is present and this pdc has a runtime for it. */
Target toolchain_default_target(Arena *arena);
/* What --attention, --nondeterministic and --arch mean for attention of a CUDA program, and whether this pdc has the runtime
 * for cuDNN. */
CudaAttention toolchain_attention(Arena *arena, const Options *options);
/* --print-cuda-requirements */
void toolchain_print_requirements(Arena *arena);
/* Writes a file that appears whole or not at all ("-": standard output). */
bool write_whole(Arena *arena, const char *path, const char *text, size_t length);
/* NULL if the file cannot be read (a message is printed). "-" reads standard input. */
const char *read_whole(Arena *arena, const char *path, size_t *length);

#endif
