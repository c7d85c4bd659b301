# pdc: `make` builds the compiler and its runtime, `make test` proves them, `make demo` shows them.
# BUILD is where everything made goes; PREFIX is where `make install` puts it.
# SANITIZE=address (with what is undefined) or thread: everything, programs of the tests too, made with g++'s sanitizers.
SANITIZE ?=
comma := ,
CHECKS := $(if $(SANITIZE),-fsanitize=$(patsubst address,address$(comma)undefined,$(SANITIZE)) -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
BUILD ?= build$(addprefix /,$(SANITIZE))
PREFIX ?= /usr/local
DESTDIR ?=
CC = gcc
MPICC = mpicc
FLEX = flex
BISON = bison
OPT ?= -O2
WARN = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes
CSTD = -std=c11 -D_GNU_SOURCE $(CHECKS)
# numeric code of the runtime and of emitted programs is compiled alike, but that the loops of emitted programs never fuse
# a product with a sum: which operations share a loop must not change a bit (what wants it, says fma)
NUMERIC = -march=native -fno-math-errno -fno-trapping-math -ffp-contract=fast -fopenmp
LINK = -lopenblas -ldnnl -ljansson -lmd -lz -lm -fopenmp $(CHECKS)
export OMPI_CC = $(CC)

COMPILER_SRC := $(wildcard compiler/*/*.c compiler/*/*/*.c)
# a program links one archive: the runtime with one device
RUNTIME_SRC := $(wildcard runtime/*.c) runtime/kernels/ref.c
HOST_SRC := $(wildcard runtime/host/*.c) runtime/kernels/host.c runtime/kernels/direct.c runtime/kernels/select.c
GENERATED := $(BUILD)/gen/syntax/grammar.c $(BUILD)/gen/syntax/lexer.c
COMPILER_OBJ := $(COMPILER_SRC:%.c=$(BUILD)/%.o) $(GENERATED:.c=.o)
RUNTIME_OBJ := $(RUNTIME_SRC:%.c=$(BUILD)/%.o)
HOST_OBJ := $(HOST_SRC:%.c=$(BUILD)/%.o)
# the memory layout is computed by the same files in the compiler and in the program
SHARED_OBJ := $(patsubst %,$(BUILD)/compiler/shared/%.o,layout walk schedule)

# the runtime of the cuda target, where there is a CUDA toolkit to build it with
CUDA ?= /usr/local/cuda
# Python's packages have NCCL and cuDNN in folders beside CUDA's, Debian's among the system's headers
header = $(firstword $(wildcard $(CUDA)/include/$(1) $(CUDA)/../$(2)/include/$(1) /usr/include/$(1) /usr/include/x86_64-linux-gnu/$(1)))
NCCL := $(call header,nccl.h,nccl)
ifneq ($(wildcard $(CUDA)/include/cublasLt.h),)
ifeq ($(NCCL),)
$(info the CUDA target is left out: there is a toolkit in $(CUDA), but no nccl.h there or in /usr/include (Debian and Ubuntu: libnccl-dev))
endif
endif
# attention by cuDNN, which programs open when they start, where its headers are; lib/pdc/cudnn says so to pdc
CUDNN := $(call header,cudnn.h,cudnn)
CUDA_SRC := $(filter-out $(if $(CUDNN),,$(wildcard runtime/cuda/attention*.c) runtime/cuda/cudnn_library.c),$(wildcard runtime/cuda/*.c))
CUDA_OBJ := $(CUDA_SRC:%.c=$(BUILD)/%.o)
SINGLE_OBJ := $(patsubst %.c,$(BUILD)/single/%.o,$(wildcard runtime/*.c) $(CUDA_SRC) runtime/kernels/ref.c)
CUDA_INC = -isystem $(CUDA)/include $(patsubst %,-isystem %,$(wildcard $(CUDA)/../nccl/include $(CUDA)/../cudnn/include))
CUDA_LIB = $(if $(and $(CUDA),$(NCCL),$(wildcard $(CUDA)/include/cublasLt.h)),$(BUILD)/lib/pdc/libpdrt_cuda.a $(BUILD)/lib/pdc/libpdrt_cuda_single.a $(if $(CUDNN),$(BUILD)/lib/pdc/cudnn))

COMPILER_INC = -Icompiler -I$(BUILD)/gen -Iruntime
RUNTIME_INC = -Iruntime
PDC_LIBS = -ljansson -lmd -lz -lm $(CHECKS)
# what an installed pdc needs to build programs: beside the compiler in lib/pdc
LIB = $(BUILD)/lib/pdc
HEADERS := $(wildcard runtime/*.h runtime/kernels/*.h) runtime/cuda/launch.h runtime/cuda/kernels.h
TEMPLATES := $(wildcard templates/*/*.pd templates/cuda/*.cuh templates/cuda/nvrtc/*.h)
LIB_FILES = $(LIB)/libpdrt.a $(LIB)/cflags $(LIB)/libs $(LIB)/nvccflags $(LIB)/nvrtcflags $(LIB)/cuda_cxxflags $(LIB)/cuda_cflags $(LIB)/cuda_libs $(CUDA_LIB) $(HEADERS:runtime/%=$(LIB)/include/%) $(TEMPLATES:templates/%=$(LIB)/%)

# for what people start without thinking of make's own -j
ALL_CORES = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

.PHONY: all setup test promote fuzz fuzz-readers demo install clean
all: $(BUILD)/pdc $(LIB_FILES)

$(BUILD)/pdc: $(COMPILER_OBJ) $(SHARED_OBJ)
	$(CC) -o $@ $^ $(PDC_LIBS)

$(LIB)/libpdrt.a: $(RUNTIME_OBJ) $(HOST_OBJ)
	@mkdir -p $(@D)
	rm -f $@
	ar rcs $@ $^

$(LIB)/libpdrt_cuda.a: $(RUNTIME_OBJ) $(CUDA_OBJ)
	@mkdir -p $(@D)
	rm -f $@
	ar rcs $@ $^

# the same without MPI, for programs of one process
$(LIB)/libpdrt_cuda_single.a: $(SINGLE_OBJ)
	@mkdir -p $(@D)
	rm -f $@
	ar rcs $@ $^
$(BUILD)/single/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CSTD) -O2 -fopenmp -g $(WARN) -Iruntime/single $(RUNTIME_INC) $(CUDA_INC) -MMD -MP -c -o $@ $<

$(LIB)/nvccflags: Makefile
	@mkdir -p $(@D)
	echo '-O2 -std=c++17 -fmad=false -Werror all-warnings -Xptxas -warn-spills' > $@
# the same for pdc nvrtc, where a warning is an error, and for the C++ compiler that then compiles the host's side
$(LIB)/nvrtcflags: Makefile
	@mkdir -p $(@D)
	echo '-std=c++17 -fmad=false -default-device --ptxas-options=--warn-on-spills' > $@
$(LIB)/cuda_cxxflags: Makefile
	@mkdir -p $(@D)
	echo '-O2 -std=c++17 -Wall -DPD_NVRTC -x c++' > $@
$(LIB)/cuda_cflags: Makefile
	@mkdir -p $(@D)
	echo '$(CSTD) -Wall' > $@
$(LIB)/cuda_libs: Makefile
	@mkdir -p $(@D)
	echo '-l:libcudart.so.13 -l:libcublasLt.so.13 -l:libnccl.so.2 -ldl -lstdc++ -ljansson -lmd -lz -lm -fopenmp $(CHECKS)' > $@
$(LIB)/cudnn: $(CUDNN) Makefile
	@mkdir -p $(@D)
	$(CC) -E -dM -include $(CUDNN) $(CUDA_INC) -x c /dev/null | awk '{ is[$$2] = $$3 } END { print is["CUDNN_MAJOR"] "." is["CUDNN_MINOR"] "." is["CUDNN_PATCHLEVEL"] }' > $@
$(LIB)/cflags: Makefile
	@mkdir -p $(@D)
	echo '$(CSTD) $(NUMERIC) -ffp-contract=off -Wall' > $@
$(LIB)/libs: Makefile
	@mkdir -p $(@D)
	echo '$(LINK)' > $@
$(LIB)/include/%: runtime/%
	@mkdir -p $(@D)
	cp $< $@
$(LIB)/%: templates/%
	@mkdir -p $(@D)
	cp $< $@

$(BUILD)/gen/syntax/grammar.c: compiler/syntax/grammar.y
	@mkdir -p $(@D)
	$(BISON) -Wall -Werror --defines=$(BUILD)/gen/syntax/grammar.h -o $@ $<
$(BUILD)/gen/syntax/grammar.h: $(BUILD)/gen/syntax/grammar.c
$(BUILD)/gen/syntax/lexer.c: compiler/syntax/lexer.l $(BUILD)/gen/syntax/grammar.h
	@mkdir -p $(@D)
	$(FLEX) --header-file=$(BUILD)/gen/syntax/lexer.h -o $@ $<
$(BUILD)/gen/syntax/lexer.h: $(BUILD)/gen/syntax/lexer.c
$(BUILD)/gen/syntax/%.o: $(BUILD)/gen/syntax/%.c
	$(CC) $(CSTD) $(OPT) -g $(COMPILER_INC) -w -MMD -MP -c -o $@ $<

$(BUILD)/compiler/%.o: compiler/%.c | $(BUILD)/gen/syntax/grammar.h $(BUILD)/gen/syntax/lexer.h
	@mkdir -p $(@D)
	$(CC) $(CSTD) $(OPT) -g $(WARN) $(COMPILER_INC) -MMD -MP -c -o $@ $<
$(BUILD)/compiler/shared/%.o: runtime/%.c
	@mkdir -p $(@D)
	$(CC) $(CSTD) $(OPT) -g $(WARN) $(RUNTIME_INC) -MMD -MP -c -o $@ $<
$(BUILD)/runtime/cuda/%.o: runtime/cuda/%.c
	@mkdir -p $(@D)
	$(MPICC) $(CSTD) -O2 -g $(WARN) $(RUNTIME_INC) $(CUDA_INC) -MMD -MP -c -o $@ $<
$(BUILD)/runtime/%.o: runtime/%.c
	@mkdir -p $(@D)
	$(MPICC) $(CSTD) -O3 $(NUMERIC) -g $(WARN) $(RUNTIME_INC) -MMD -MP -c -o $@ $<

-include $(COMPILER_OBJ:.o=.d) $(RUNTIME_OBJ:.o=.d) $(HOST_OBJ:.o=.d) $(CUDA_OBJ:.o=.d) $(SINGLE_OBJ:.o=.d) $(SHARED_OBJ:.o=.d)

# unit tests: one Criterion program a file, linked with the compiler (without its main) and the runtime
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/*_test.c))
$(BUILD)/tests/unit/%: tests/unit/%.c $(wildcard tests/unit/*.h) $(filter-out $(BUILD)/compiler/driver/main.o,$(COMPILER_OBJ)) $(LIB)/libpdrt.a
	@mkdir -p $(@D)
	$(MPICC) $(CSTD) -O1 -g $(WARN) $(COMPILER_INC) -Itests -o $@ $(filter-out %.h,$^) -lcriterion $(PDC_LIBS) $(LINK)

include tests/fakegpu/rules.mk

setup:
	@scripts/setup.sh
# make is asked again after setup, so that what setup installs is found
test: setup
	@$(MAKE) $(ALL_CORES) --no-print-directory -s all $(UNIT) $(if $(CUDA_LIB),fakegpu)
	@CUDA=$(if $(CUDA_LIB),$(CUDA)) SANITIZE=$(SANITIZE) scripts/test.py $(BUILD) $(SUITES)
# what pdc says and what CUDA programs call now becomes what tests/bad, docs/errors and tests/cuda/calls expect: read the difference before keeping it
promote: all $(if $(CUDA_LIB),fakegpu)
	BUILD=$(BUILD) python3 tests/run/bad_test.py --promote
	BUILD=$(BUILD) python3 tests/run/pages_test.py --promote
	$(if $(CUDA_LIB),BUILD=$(BUILD) CUDA=$(CUDA) python3 tests/run/cuda_calls_test.py --promote)
# libFuzzer on every pass, in memory, with ASan and UBSan (clang and libclang-rt): `make fuzz FUZZ_TIME=900`
FUZZ_TIME ?= 60
FUZZ = $(BUILD)/fuzz
FUZZ_SANITIZE = -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
FUZZ_SRC := $(filter-out compiler/driver/main.c,$(COMPILER_SRC)) $(patsubst %,runtime/%.c,layout walk schedule)
FUZZ_OBJ := $(FUZZ_SRC:%.c=$(FUZZ)/%.o) $(GENERATED:$(BUILD)/%.c=$(FUZZ)/%.o)
FUZZ_COMPILE := $(patsubst %.c,$(FUZZ)/%.o,$(wildcard tests/fuzz/compile/*.c))
FUZZ_READERS := $(patsubst %.c,$(FUZZ)/%.o,$(wildcard tests/fuzz/readers/*.c) $(patsubst %,runtime/%.c,data data_array safetensors log random))
$(FUZZ)/%.o: %.c | $(BUILD)/gen/syntax/grammar.h $(BUILD)/gen/syntax/lexer.h
	@mkdir -p $(@D)
	clang $(CSTD) -O1 -g $(WARN) $(FUZZ_SANITIZE) $(COMPILER_INC) -MMD -MP -c -o $@ $<
$(FUZZ)/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	clang $(CSTD) -O1 -g -w $(FUZZ_SANITIZE) $(COMPILER_INC) -c -o $@ $<
$(FUZZ)/fuzz_compile: $(FUZZ_OBJ) $(FUZZ_COMPILE)
$(FUZZ)/fuzz_readers: $(FUZZ_OBJ) $(FUZZ_READERS)
$(FUZZ)/fuzz_compile $(FUZZ)/fuzz_readers:
	clang -fsanitize=fuzzer,address,undefined -o $@ $^ $(PDC_LIBS)
-include $(FUZZ_OBJ:.o=.d) $(FUZZ_COMPILE:.o=.d) $(FUZZ_READERS:.o=.d)
FUZZ_FLAGS = -max_total_time=$(FUZZ_TIME) -max_len=4096 -timeout=20 -rss_limit_mb=3000 -print_final_stats=1
fuzz: $(FUZZ)/fuzz_compile
	@mkdir -p $(FUZZ)/corpus $(FUZZ)/found
	$(FUZZ)/fuzz_compile $(FUZZ_FLAGS) -dict=tests/fuzz/compile/pd.dict -artifact_prefix=$(FUZZ)/found/ \
	  $(FUZZ)/corpus tests/bad tests/programs examples templates/std
# the same for everything else that is read: plans, schedules, layout strings, weights, data, the language server's input
fuzz-readers: $(FUZZ)/fuzz_readers $(BUILD)/pdc
	@mkdir -p $(FUZZ)/corpus-readers $(FUZZ)/found
	python3 tests/fuzz/readers/seeds.py $(BUILD)/pdc $(FUZZ)/seeds
	$(FUZZ)/fuzz_readers $(FUZZ_FLAGS) -artifact_prefix=$(FUZZ)/found/ $(FUZZ)/corpus-readers $(FUZZ)/seeds
demo: setup
	@$(MAKE) --no-print-directory -s all
	@scripts/demo.sh $(BUILD)

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(BUILD)/pdc $(DESTDIR)$(PREFIX)/bin/pdc
	rm -rf $(DESTDIR)$(PREFIX)/lib/pdc
	cp -R $(LIB) $(DESTDIR)$(PREFIX)/lib/pdc

clean:
	rm -rf $(BUILD)
