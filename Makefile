# pdc: `make` builds the compiler and its runtime, `make test` proves them, `make demo` shows them.
# BUILD is where everything made goes; PREFIX is where `make install` puts it.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
CC = gcc
MPICC = mpicc
FLEX = flex
BISON = bison
OPT ?= -O2
WARN = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes
CSTD = -std=c11 -D_GNU_SOURCE
# numeric code of the runtime and of emitted programs is compiled alike
NATIVE ?= -O3 -march=native -fno-math-errno -fno-trapping-math -fopenmp
export OMPI_CC = $(CC)

COMPILER_SRC := $(wildcard compiler/*/*.c compiler/*/*/*.c)
RUNTIME_SRC := $(wildcard runtime/*.c runtime/*/*.c)
GENERATED := $(BUILD)/gen/syntax/grammar.c $(BUILD)/gen/syntax/lexer.c
COMPILER_OBJ := $(COMPILER_SRC:%.c=$(BUILD)/%.o) $(GENERATED:.c=.o)
RUNTIME_OBJ := $(RUNTIME_SRC:%.c=$(BUILD)/%.o)
# the memory layout is computed by one file, in the compiler and in the program
SHARED_OBJ := $(BUILD)/compiler/shared/layout.o

COMPILER_INC = -Icompiler -I$(BUILD)/gen -Iruntime
RUNTIME_INC = -Iruntime
PDC_LIBS = -ljansson -lmd -lm
DEFS = -DPDC_BUILD_ROOT='"$(CURDIR)"'

.PHONY: all test demo install clean
all: $(BUILD)/pdc $(BUILD)/lib/libpdrt.a

$(BUILD)/pdc: $(COMPILER_OBJ) $(SHARED_OBJ)
	$(CC) -o $@ $^ $(PDC_LIBS)

$(BUILD)/lib/libpdrt.a: $(RUNTIME_OBJ)
	@mkdir -p $(@D)
	rm -f $@
	ar rcs $@ $^

$(BUILD)/gen/syntax/grammar.c: compiler/syntax/grammar.y
	@mkdir -p $(@D)
	$(BISON) -Wall -Werror --defines=$(BUILD)/gen/syntax/grammar.h -o $@ $<
$(BUILD)/gen/syntax/grammar.h: $(BUILD)/gen/syntax/grammar.c
$(BUILD)/gen/syntax/lexer.c: compiler/syntax/lexer.l $(BUILD)/gen/syntax/grammar.h
	@mkdir -p $(@D)
	$(FLEX) --header-file=$(BUILD)/gen/syntax/lexer.h -o $@ $<
$(BUILD)/gen/syntax/lexer.h: $(BUILD)/gen/syntax/lexer.c
$(BUILD)/gen/syntax/%.o: $(BUILD)/gen/syntax/%.c
	$(CC) $(CSTD) $(OPT) -g $(COMPILER_INC) -w -MMD -c -o $@ $<

$(BUILD)/compiler/%.o: compiler/%.c | $(BUILD)/gen/syntax/grammar.h $(BUILD)/gen/syntax/lexer.h
	@mkdir -p $(@D)
	$(CC) $(CSTD) $(OPT) -g $(WARN) $(COMPILER_INC) $(DEFS) -MMD -c -o $@ $<
$(BUILD)/compiler/shared/layout.o: runtime/layout.c
	@mkdir -p $(@D)
	$(CC) $(CSTD) $(OPT) -g $(WARN) $(RUNTIME_INC) -MMD -c -o $@ $<
$(BUILD)/runtime/%.o: runtime/%.c
	@mkdir -p $(@D)
	$(MPICC) $(CSTD) $(NATIVE) -g $(WARN) $(RUNTIME_INC) -MMD -c -o $@ $<

-include $(COMPILER_OBJ:.o=.d) $(RUNTIME_OBJ:.o=.d) $(SHARED_OBJ:.o=.d)

clean:
	rm -rf $(BUILD)
