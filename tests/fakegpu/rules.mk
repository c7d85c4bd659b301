# The fake GPU: libraries with NVIDIA's names that run CUDA programs on the CPU (tests only; needs the CUDA toolkit's headers)
CUDA ?= /usr/local/cuda
FAKE = $(BUILD)/fakegpu
FAKE_CXX = g++ -std=c++17 -O2 -g -fPIC -ftls-model=initial-exec -fopenmp -Wall -Wextra -Wconversion -Wshadow -isystem $(CUDA)/include
FAKE_SRC := $(wildcard tests/fakegpu/*.cpp)
FAKE_OBJ := $(FAKE_SRC:tests/fakegpu/%.cpp=$(FAKE)/%.o)

.PHONY: fakegpu
fakegpu: $(FAKE)/libcudart.so.13 $(FAKE)/libcublasLt.so.13 $(FAKE)/libnccl.so.2 $(if $(CUDNN),$(FAKE)/libcudnn.so.9 $(FAKE)/libcudnn_graph.so.9)
$(FAKE)/%.o: tests/fakegpu/%.cpp
	@mkdir -p $(@D)
	@[ -e $(CUDA)/include/cuda_runtime.h ] || { echo "the tests of the CUDA target need the CUDA toolkit; set CUDA=… (now $(CUDA))"; exit 1; }
	$(FAKE_CXX) -MMD -MP -c -o $@ $<
$(FAKE)/libcudart.so.13: $(FAKE_OBJ) tests/fakegpu/libcudart.map
	$(FAKE_CXX) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -Wl,--version-script=tests/fakegpu/libcudart.map -o $@ $(FAKE_OBJ)
# the libraries that stand on it; NCCL's messages go over MPI
FAKE_LT_OBJ := $(patsubst tests/fakegpu/%.cpp,$(FAKE)/%.o,$(wildcard tests/fakegpu/cublaslt/*.cpp))
FAKE_CUDNN_OBJ := $(patsubst tests/fakegpu/%.cpp,$(FAKE)/%.o,$(wildcard tests/fakegpu/cudnn/*.cpp))
FAKE_NCCL_OBJ := $(patsubst tests/fakegpu/%.cpp,$(FAKE)/%.o,$(wildcard tests/fakegpu/nccl/*.cpp))
$(FAKE_NCCL_OBJ): FAKE_CXX += -DOMPI_SKIP_MPICXX $(shell $(MPICC) --showme:compile)
$(FAKE)/libcublasLt.so.13: $(FAKE_LT_OBJ) tests/fakegpu/cublaslt/libcublasLt.map $(FAKE)/libcudart.so.13
	$(FAKE_CXX) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -Wl,--version-script=tests/fakegpu/cublaslt/libcublasLt.map -o $@ $(FAKE_LT_OBJ) \
	  -L$(FAKE) -l:libcudart.so.13 -lopenblas
$(FAKE)/libcudnn.so.9: $(FAKE_CUDNN_OBJ) $(FAKE)/libcudart.so.13
	$(FAKE_CXX) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -o $@ $(FAKE_CUDNN_OBJ) -L$(FAKE) -l:libcudart.so.13
# a part of cuDNN, which programs only look for
$(FAKE)/libcudnn_graph.so.9: tests/fakegpu/rules.mk
	@mkdir -p $(@D)
	$(FAKE_CXX) -shared -Wl,-soname,$(@F) -o $@ -x c++ /dev/null
$(FAKE)/libnccl.so.2: $(FAKE_NCCL_OBJ) $(FAKE)/libcudart.so.13
	$(FAKE_CXX) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -o $@ $(FAKE_NCCL_OBJ) -L$(FAKE) -l:libcudart.so.13 $(shell $(MPICC) --showme:link)
-include $(FAKE_OBJ:.o=.d) $(FAKE_LT_OBJ:.o=.d) $(FAKE_CUDNN_OBJ:.o=.d) $(FAKE_NCCL_OBJ:.o=.d)
