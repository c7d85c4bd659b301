"""The fake GPU's cublasLt, cuDNN and NCCL: programs compiled against NVIDIA's headers and linked with NVIDIA's libraries run on the
fake ones, give the right numbers under every seed, and each planted mistake is named."""
import os

import harness
from harness import check, directory

CUDA = os.environ.get("CUDA", "/usr/local/cuda")
FAKE = os.path.join(os.path.dirname(harness.PDC), "fakegpu")
COMPILERS = {"products": ("gcc", "-lcublasLt"), "collectives": ("mpicc", "-lnccl"), "attention": ("gcc", "-ldl")}
# attention is described to cuDNN by the runtime's own functions
RUNTIME = {"attention": [os.path.join(harness.ROOT, "runtime", "cuda", name) for name in ("attention_cudnn.c", "attention_graph.c", "cudnn_library.c")]}


def program(name):
    def compile_it():
        path = os.path.join(directory(), name)
        source = os.path.join(harness.ROOT, "tests", "fakegpu", "programs", name + ".c")
        compiler, library = COMPILERS[name]
        result = harness.command([compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I" + os.path.join(harness.ROOT, "runtime"), "-isystem",
                                  CUDA + "/include", source, *RUNTIME.get(name, []), "-o", path,
                                  "-L" + CUDA + "/lib64", "-lcudart", library, "-lm"], harness.COMPILE_LIMIT)
        check(result.code == 0, result.describe())
        return path
    return harness.once("fakelibs " + name, compile_it)


def run(words, **variables):
    return harness.command(words, 60, environment={"LD_LIBRARY_PATH": FAKE, "PD_FAKE_TIMEOUT": "20", **variables})


def test_products():
    result = run([program("products")])
    check(result.code == 0 and result.out.count("\n") == 168, result.describe())


def product_mistake(mistake, message):
    def test():
        result = run([program("products"), mistake], PD_FAKE_LEAKS="0")
        check(message in result.text and "CUBLAS_STATUS_SUCCESS" not in result.text, result.describe())
    return test


for mistake, message in (("leading dimension", "a leading dimension is smaller than the matrix's rows"),
                         ("auxiliary dimension", "must be a multiple of 8"),
                         ("workspace", "the workspace is smaller than the algorithm needs"),
                         ("alignment", "less aligned than the algorithm was chosen for"),
                         ("outside", "cublasLtMatmul"),
                         ("overlap", "D overlaps an input"),
                         ("host memory", "not in device memory"),
                         ("other product", "the algorithm was not chosen for this product")):
    harness.add("product with wrong " + mistake, product_mistake(mistake, message))


def attention(seed):
    def test():
        result = run([program("attention")], PD_FAKE_SEED=str(seed))
        check(result.code == 0 and result.out.count("\n") == 24, result.describe())
    return test


def attention_mistake(mistake, message):
    def test():
        result = run([program("attention"), mistake], PD_FAKE_LEAKS="0")
        check(message in result.text and result.code != 0, result.describe())
    return test


if os.path.exists(CUDA + "/include/cudnn.h"):
    for seed in (0, 1, 2, 3):
        harness.add("attention, seed %d" % seed, attention(seed))
    for mistake, message in (("stride", "a stride of tensor 1 is not a multiple of 8"),
                             ("overlapping rows", "two elements of a tensor are in one place"),
                             ("shape", "the shapes of a product do not fit"),
                             ("one name for two tensors", "two tensors have the name 1"),
                             ("order of operations", "no engine knows a graph of the operations M*gg>?m-esl/+M"),
                             ("read before it is made", "virtual tensor 106 is read before an operation makes it"),
                             ("not finalized", "a descriptor is used before it is finalized"),
                             ("head size", "the head size is not a multiple of 8"),
                             ("long heads", "the head size is not less than equal to 256"),
                             ("single query", "one query and one key"),
                             ("unknown name", "the plan has no tensor 77"),
                             ("name twice", "tensor 2 is given twice"),
                             ("tensor left out", "is not given"),
                             ("no workspace", "the workspace is NULL"),
                             ("small workspace", "fault"),
                             ("alignment", "tensor 1 is less aligned than its descriptor says"),
                             ("outside", "after the end"),
                             ("host memory", "tensor 1 is not in device memory"),
                             ("overlap", "overlaps the workspace or another tensor"),
                             ("destroyed handle", "cuDNN handle"),
                             ("other direction", "CUDNN_STATUS_BAD_PARAM"),
                             ("other statistics", "fault: cudnn-statistics")):
        harness.add("attention with wrong " + mistake, attention_mistake(mistake, message))


def collectives(ranks, seed):
    def test():
        result = run(["mpirun", "-n", str(ranks), program("collectives")], PD_FAKE_SEED=str(seed))
        check(result.code == 0 and "checks" in result.out, result.describe())
    return test


for ranks in (1, 2, 3, 4):
    for seed in (0, 1, 2, 3):
        harness.add("collectives on %d ranks, seed %d" % (ranks, seed), collectives(ranks, seed))


def collective_mistake(mistake, messages):
    def test():
        result = run(["mpirun", "-n", "2", program("collectives"), mistake], PD_FAKE_TIMEOUT="2")
        check(result.code != 0, result.describe())
        for message in messages:
            check(message in result.text, "%s is not named\n%s" % (message, result.describe()))
    return test


for mistake, messages in (("count", ("collective mismatch", "count=999", "count=1000", "rank 1 of 2")),
                          ("order", ("collective mismatch", "ncclAllGather", "ncclAllReduce")),
                          ("reduction", ("collective mismatch", "f32 max", "f32 sum")),
                          ("communicator", ("collective mismatch",)),
                          ("peer", ("there is no rank 2 among 2",)),
                          ("size", ("message mismatch", "count=500", "count=1000")),
                          ("no group", ("no-progress", "ncclSend")),
                          ("early destroy", ("NCCL communicator",))):
    harness.add("collectives with wrong " + mistake, collective_mistake(mistake, messages))

harness.main(__name__, jobs=3)
