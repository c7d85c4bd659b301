# The fake GPU: libraries with NVIDIA's names that run CUDA programs on the CPU (tests only; needs the CUDA toolkit's headers)
CUDA ?= /usr/local/cuda
FAKE = $(BUILD)/fakegpu
FAKE_CXX = g++ -std=c++17 -O2 -g -fPIC -fopenmp -Wall -Wextra -Wconversion -Wshadow -isystem $(CUDA)/include
FAKE_SRC := $(wildcard tests/fakegpu/*.cpp)
FAKE_OBJ := $(FAKE_SRC:tests/fakegpu/%.cpp=$(FAKE)/%.o)

.PHONY: fakegpu
fakegpu: $(FAKE)/libcudart.so.13
$(FAKE)/%.o: tests/fakegpu/%.cpp
	@mkdir -p $(@D)
	@[ -e $(CUDA)/include/cuda_runtime.h ] || { echo "the tests of the CUDA target need the CUDA toolkit; set CUDA=… (now $(CUDA))"; exit 1; }
	$(FAKE_CXX) -MMD -MP -c -o $@ $<
$(FAKE)/libcudart.so.13: $(FAKE_OBJ) tests/fakegpu/libcudart.map
	$(FAKE_CXX) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -Wl,--version-script=tests/fakegpu/libcudart.map -o $@ $(FAKE_OBJ)
-include $(FAKE_OBJ:.o=.d)
