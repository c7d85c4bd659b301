/* The option table: the parser and --help come from it. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "driver/command_line.h"
#include "driver/commands.h"

typedef enum OptionId {
  OPTION_HELP, OPTION_VERSION, OPTION_EXPLAIN, OPTION_OUTPUT, OPTION_DEFINE, OPTION_IMPORT, OPTION_SOURCE, OPTION_CHECK, OPTION_EMIT,
  OPTION_MODEL, OPTION_LIST_CONFIG, OPTION_TARGET, OPTION_OPTIMIZE, OPTION_DEBUG, OPTION_DIAGNOSTICS, OPTION_COLOR, OPTION_WERROR,
  OPTION_WARNING, OPTION_DEPENDENCIES_ONLY, OPTION_DEPENDENCIES, OPTION_DEPENDENCY_FILE, OPTION_CC, OPTION_VERBOSE, OPTION_COMMANDS,
  OPTION_SAVE_TEMPS, OPTION_ARCH, OPTION_NO_MPI, OPTION_CUDA_COMPILER, OPTION_CXX, OPTION_ATTENTION, OPTION_NONDETERMINISTIC,
  OPTION_REQUIREMENTS
} OptionId;

static const OptionRow rows[] = {
    {OPTION_OUTPUT, "-o", FORM_JOINED_OR_NEXT, "FILE", "write the product to FILE (`-` is standard output)"},
    {OPTION_DEFINE, "-D", FORM_JOINED_OR_NEXT, "NAME=VALUE", "set a `config const` (layers=12) or a section's key (parallel.tp=4)"},
    {OPTION_IMPORT, "-I", FORM_JOINED_OR_NEXT, "DIR", "search DIR for imports"},
    {OPTION_SOURCE, "-S", FORM_FLAG, NULL, "write the C source and the plan, do not compile them"},
    {OPTION_CHECK, "-fsyntax-only", FORM_FLAG, NULL, "check the program, produce nothing (also: pdc check FILE)"},
    {OPTION_EMIT, "--emit", FORM_EQUALS, "KIND", "print ast, ir, json, dot, sharding, memory, schedule, plan, deps, c, svg, html or\n                         "
     "trace instead of building"},
    {OPTION_MODEL, "--model", FORM_EQUALS, "NAME", "the model to compile when a file has several"},
    {OPTION_LIST_CONFIG, "--list-config", FORM_FLAG, NULL, "list what -D may set, with types and defaults"},
    {OPTION_TARGET, "--target", FORM_EQUALS, "TARGET", "host: C, MPI and a BLAS; cuda: NVIDIA GPUs, with NCCL (default:\n                         "
     "$PDC_TARGET, else cuda where its driver is present, else host)"},
    {OPTION_ARCH, "--arch", FORM_EQUALS, "ARCH", "cuda: an architecture to build for, such as sm_90; several with commas or\n                         "
     "repeated (default sm_80, sm_90, sm_100 and later ones)"},
    {OPTION_NO_MPI, "--no-mpi", FORM_FLAG, NULL, "cuda: a program of one rank that needs no MPI to build or to run"},
    {OPTION_CUDA_COMPILER, "--cuda-compiler", FORM_EQUALS, "NAME", "cuda: nvcc (the default), or nvrtc, which needs no toolkit: kernels are compiled by\n                         "
     "NVIDIA's library libnvrtc, their launches by a C++ compiler"},
    {OPTION_ATTENTION, "--attention", FORM_EQUALS, "WHO", "cuda: cudnn, own: who computes attention; auto (the default): cuDNN where it\n                         "
     "can, else kernels of the program's own, which it has in any case"},
    {OPTION_NONDETERMINISTIC, "--nondeterministic", FORM_FLAG, NULL, "cuda: cuDNN may add up attention's gradient in any order: less memory, other\n                         "
     "last digits in every run"},
    {OPTION_REQUIREMENTS, "--print-cuda-requirements", FORM_FLAG, NULL, "what the cuda target needs to build and to run"},
    {OPTION_OPTIMIZE, "-O", FORM_PREFIX, "0..3", "optimisation of the emitted C (default -O3)"},
    {OPTION_DEBUG, "-g", FORM_FLAG, NULL, "debug information in the program"},
    {OPTION_DEPENDENCIES_ONLY, "-M", FORM_FLAG, NULL, "print a rule for make with the files the program is made of"},
    {OPTION_DEPENDENCIES, "-MD", FORM_FLAG, NULL, "write that rule too, into a file ending in .d"},
    {OPTION_DEPENDENCY_FILE, "-MF", FORM_JOINED_OR_NEXT, "FILE", "where -M or -MD write"},
    {OPTION_WERROR, "-Werror", FORM_FLAG, NULL, "warnings are errors"},
    {OPTION_WARNING, "-W", FORM_PREFIX, "[no-]NAME", "turn a warning on or off; -Wall (the default), -Wno-all; their names are below"},
    {OPTION_DIAGNOSTICS, "--diagnostics", FORM_EQUALS, "FORM", "text, short or json"},
    {OPTION_COLOR, "--color", FORM_EQUALS, "WHEN", "auto, always or never (NO_COLOR is honoured)"},
    {OPTION_CC, "--cc", FORM_EQUALS, "COMMAND", "the MPI C compiler (default $PDC_CC, else mpicc)"},
    {OPTION_CXX, "--cxx", FORM_EQUALS, "COMMAND", "cuda: the C++ compiler (default $PDC_CXX, else c++; with nvcc its own)"},
    {OPTION_VERBOSE, "-v", FORM_FLAG, NULL, "say what was decided: parameters, stages, memory"},
    {OPTION_COMMANDS, "-###", FORM_FLAG, NULL, "print the commands instead of running them"},
    {OPTION_SAVE_TEMPS, "--save-temps", FORM_FLAG, NULL, "keep the C source and the plan beside the program"},
    {OPTION_EXPLAIN, "--explain", FORM_EQUALS, "CODE", "the long story of an error code"},
    {OPTION_HELP, "--help", FORM_FLAG, NULL, "this text"},
    {OPTION_VERSION, "--version", FORM_FLAG, NULL, "the version"},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

static const struct {
  const char *code, *title, *text;
} codes[] = {
#define CODE(code, title, text) {code, title, text},
#include "support/codes.def"
#undef CODE
};

static int explain(const char *code) {
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (strcasecmp(codes[i].code, code) == 0) {
      printf("%s: %s\n\n%s\n", codes[i].code, codes[i].title, codes[i].text);
      return EXIT_OK;
    }
  fprintf(stderr, "pdc: no error code `%s`; codes look like E0301\n", code);
  return EXIT_USAGE;
}

/* What -W calls a warning: its title with `-` for blanks. */
typedef struct WarningName {
  char at[64];
} WarningName;

static WarningName warning_name(const char *title) {
  WarningName name;
  snprintf(name.at, sizeof name.at, "%s", title);
  for (char *c = name.at; *c; c++)
    if (*c == ' ') *c = '-';
  return name;
}

void options_help(void) {
  printf("usage: pdc [options] FILE.pd       build a training program (`-` reads standard input)\n"
         "       pdc check [options] FILE.pd check only\n");
  commands_help();
  printf("\noptions:\n");
  command_line_help(rows, ROW_COUNT);
  printf("\nwarnings:\n");
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i].code[0] == 'W') printf("  %-22s %s\n", codes[i].code, warning_name(codes[i].title).at);
  printf("\nexit status: 0 done; 1 the program has errors; 2 usage or input/output; 3 a compiler failed or is missing; 70 internal error\n");
}

static int choose_emit(const char *value, EmitKind *emit) {
  static const struct {
    const char *name;
    EmitKind kind;
  } kinds[] = {{"ast", EMIT_AST}, {"ir", EMIT_IR}, {"json", EMIT_JSON}, {"dot", EMIT_DOT}, {"sharding", EMIT_SHARDING}, {"memory", EMIT_MEMORY},
               {"schedule", EMIT_SCHEDULE}, {"plan", EMIT_PLAN}, {"deps", EMIT_DEPENDENCIES}, {"c", EMIT_C},
               {"svg", EMIT_SVG}, {"html", EMIT_HTML}, {"trace", EMIT_TRACE}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, value) == 0) {
      *emit = kinds[i].kind;
      return -1;
    }
  fprintf(stderr, "pdc: --emit=%s: choose one of", value);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) fprintf(stderr, "%s %s", i ? "," : "", kinds[i].name);
  fprintf(stderr, "\n");
  return EXIT_USAGE;
}

/* -Wall, -Wno-all, -WNAME, -Wno-NAME, -Wno-error. */
static int choose_warning(Arena *arena, const char *value, Options *o) {
  bool on = strncmp(value, "no-", 3) != 0;
  const char *wanted = on ? value : value + 3;
  if (strcmp(wanted, "error") == 0) {
    o->warnings_are_errors = on;
    return -1;
  }
  const char *code = NULL;
  for (size_t i = 0; i < sizeof codes / sizeof *codes && !code; i++)
    if (codes[i].code[0] == 'W' && (strcmp(codes[i].code, wanted) == 0 || strcmp(warning_name(codes[i].title).at, wanted) == 0))
      code = codes[i].code;
  if (!code && strcmp(wanted, "all") != 0) return usage_error("-W%s: no such warning (pdc --help lists them)", value);
  vec_push(arena, &o->warnings, (WarningSwitch){code, on});
  return -1;
}

/* "sm_90", "90", "sm_80,sm_100a" */
static int choose_archs(Arena *arena, const char *value, Options *o) {
  for (const char *at = value; *at;) {
    size_t length = strcspn(at, ",");
    const char *word = arena_strndup(arena, at, length), *number = strncmp(word, "sm_", 3) == 0 ? word + 3 : word;
    size_t digits = strspn(number, "0123456789");
    bool known = digits >= 2 && digits <= 3 && (!number[digits] || (strchr("af", number[digits]) && !number[digits + 1]));
    if (!known || strtol(number, NULL, 10) < 80)
      return usage_error("--arch=%s: write sm_80 or a later architecture, such as sm_90, sm_100a or sm_120", word);
    vec_push(arena, &o->archs, number);
    at += length + (at[length] == ',');
  }
  return o->archs.count ? -1 : usage_error("--arch=%s: name an architecture, such as sm_90", value);
}

/* `refusal` has a place for the value. */
static int target_of(const char *value, const char *refusal, Target *target) {
  if (strcmp(value, "cuda") == 0) *target = TARGET_CUDA;
  else if (strcmp(value, "host") == 0) *target = TARGET_HOST;
  else return usage_error(refusal, value);
  return -1;
}

static int apply(Arena *arena, void *into, const OptionRow *row, const char *value) {
  Options *o = into;
  switch ((OptionId)row->id) {
  case OPTION_HELP: options_help(); return EXIT_OK;
  case OPTION_VERSION: printf("%s\n", PDC_VERSION); return EXIT_OK;
  case OPTION_EXPLAIN: return explain(value);
  case OPTION_OUTPUT: o->output = value; break;
  case OPTION_DEFINE: {
    const char *equals = strchr(value, '=');
    if (!equals || equals == value) return usage_error("-D %s: write -D NAME=VALUE", value);
    vec_push(arena, &o->defines, (Define){arena_strndup(arena, value, (size_t)(equals - value)), equals + 1});
    break;
  }
  case OPTION_IMPORT: vec_push(arena, &o->import_dirs, value); break;
  case OPTION_SOURCE:
    o->emit = EMIT_C;
    o->print_c = false;
    break;
  case OPTION_CHECK: o->emit = EMIT_CHECK; break;
  case OPTION_EMIT: o->print_c = true; return choose_emit(value, &o->emit);
  case OPTION_MODEL: o->model = value; break;
  case OPTION_LIST_CONFIG: o->emit = EMIT_CONFIG; break;
  case OPTION_TARGET:
    o->target_given = true;
    return target_of(value, "--target=%s: no such target; choose host or cuda", &o->target);
  case OPTION_ARCH:
    o->cuda_option = arena_printf(arena, "--arch=%s", value);
    return choose_archs(arena, value, o);
  case OPTION_NO_MPI: o->cuda_option = "--no-mpi", o->no_mpi = true; break;
  case OPTION_CUDA_COMPILER:
    o->cuda_option = "--cuda-compiler";
    if (strcmp(value, "nvrtc") == 0) o->nvrtc = true;
    else if (strcmp(value, "nvcc") == 0) o->nvrtc = false;
    else return usage_error("--cuda-compiler=%s: choose nvcc or nvrtc", value);
    break;
  case OPTION_ATTENTION:
    o->cuda_option = arena_printf(arena, "--attention=%s", value);
    if (strcmp(value, "auto") == 0) o->attention = ATTENTION_AUTO;
    else if (strcmp(value, "cudnn") == 0) o->attention = ATTENTION_CUDNN;
    else if (strcmp(value, "own") == 0) o->attention = ATTENTION_OWN;
    else return usage_error("--attention=%s: choose auto, cudnn or own", value);
    break;
  case OPTION_NONDETERMINISTIC: o->cuda_option = "--nondeterministic", o->any_order = true; break;
  case OPTION_CXX: o->cuda_option = "--cxx", o->cxx = value; break;
  case OPTION_REQUIREMENTS: toolchain_print_requirements(arena); return EXIT_OK;
  case OPTION_OPTIMIZE:
    if (strlen(value) != 1 || value[0] < '0' || value[0] > '3') return usage_error("-O%s: write -O0, -O1, -O2 or -O3", value);
    o->optimize = arena_printf(arena, "-O%s", value);
    break;
  case OPTION_DEBUG: o->debug = true; break;
  case OPTION_DIAGNOSTICS:
    if (strcmp(value, "text") == 0) o->diagnostics = DIAG_TEXT;
    else if (strcmp(value, "short") == 0) o->diagnostics = DIAG_SHORT;
    else if (strcmp(value, "json") == 0) o->diagnostics = DIAG_JSON;
    else return usage_error("--diagnostics=%s: choose text, short or json", value);
    break;
  case OPTION_COLOR:
    if (strcmp(value, "auto") != 0 && strcmp(value, "always") != 0 && strcmp(value, "never") != 0)
      return usage_error("--color=%s: choose auto, always or never", value);
    o->color = value;
    break;
  case OPTION_WERROR: o->warnings_are_errors = true; break;
  case OPTION_WARNING: return choose_warning(arena, value, o);
  case OPTION_DEPENDENCIES_ONLY: o->emit = EMIT_DEPENDENCIES; break;
  case OPTION_DEPENDENCIES: o->dependencies = true; break;
  case OPTION_DEPENDENCY_FILE: o->dependency_file = value; break;
  case OPTION_CC: o->cc = value; break;
  case OPTION_VERBOSE: o->verbose = true; break;
  case OPTION_COMMANDS: o->show_commands = true; break;
  case OPTION_SAVE_TEMPS: o->save_temps = true; break;
  }
  return -1;
}

static int take_input(void *into, const char *word) {
  Options *o = into;
  if (o->input) {
    if (strcmp(o->input, "check") == 0 && access(o->input, F_OK) != 0) { /* behind an option */
      o->emit = EMIT_CHECK;
      o->input = word;
      return -1;
    }
    const char *command = commands_nearest(o->input);
    if (command && access(o->input, F_OK) != 0) {
      fprintf(stderr, "pdc: there is no command `%s`; did you mean `%s`?\n", o->input, command);
      return EXIT_USAGE;
    }
    return usage_error("one program at a time: `%s` is a second input", word);
  }
  o->input = word;
  return -1;
}

static int choose_target(Arena *arena, Options *o) {
  if (o->any_order && o->attention == ATTENTION_OWN)
    return usage_error("%s: that is for attention by cuDNN, which --attention=own excludes", "--nondeterministic");
  if (o->cuda_option && o->target_given && o->target == TARGET_HOST)
    return usage_error("%s: that is for --target=cuda", o->cuda_option);
  if (o->target_given) return -1;
  const char *usual = getenv("PDC_TARGET");
  if (!o->cuda_option && usual && *usual) return target_of(usual, "PDC_TARGET=%s: no such target; choose host or cuda", &o->target);
  o->target = o->cuda_option ? TARGET_CUDA : toolchain_default_target(arena);
  if (o->target == TARGET_CUDA && o->emit == EMIT_PROGRAM && !o->cuda_option)
    fprintf(stderr, "pdc: building for cuda, whose driver is present; --target=host builds for the CPU\n");
  return -1;
}

int options_parse(Arena *arena, int argc, char **argv, Options *o) {
  *o = (Options){.emit = EMIT_PROGRAM, .color = "auto", .optimize = "-O3"};
  int first = 1;
  if (argc > 1 && strcmp(argv[1], "check") == 0) {
    o->emit = EMIT_CHECK;
    first = 2;
  }
  CommandLine line = {"pdc", rows, ROW_COUNT, o, apply, take_input};
  int status = command_line_walk(arena, &line, argc, argv, first);
  if (status >= 0) return status;
  if (!o->input) {
    fprintf(stderr, "pdc: no input file; usage: pdc [options] FILE.pd (pdc --help lists the options)\n");
    return EXIT_USAGE;
  }
  if (o->dependency_file && !o->dependencies && o->emit != EMIT_DEPENDENCIES)
    return usage_error("-MF %s: this names the file of -M or -MD, and neither is given", o->dependency_file);
  return choose_target(arena, o);
}
