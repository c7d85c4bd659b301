/* Builds cuDNN's attention plans for a device that is only described. usage: attention_plans ARCH B S T H G D JOINT
 * CAUSAL DETERMINISTIC; prints a line a direction: operations, workspace, determinism, or why there is no plan. */
#include "cuda/attention_cudnn.h"

#include <stdio.h>
#include <stdlib.h>

static const struct device {
  int arch, processors, shared, l2_mib;
  const char *name;
} devices[] = {{80, 108, 166912, 40, "NVIDIA A100-SXM4-80GB"},
               {90, 132, 232448, 50, "NVIDIA H200"},
               {100, 148, 232448, 126, "NVIDIA B200"}};

static const char *describe(int arch, char *text, size_t size) {
  for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
    const struct device *d = &devices[i];
    if (d->arch != arch) continue;
    snprintf(
        text, size,
        "{\"deviceVer\": %d, \"driverVer\": 13000, \"cudaDeviceId\": 0, \"totalGlobalMem\": 85899345920, "
        "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
        "\"multiProcessorCount\": %d, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
        "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, "
        "\"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
        "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000, "
        "\"l2CacheSize\": %d, \"deviceName\": \"%s\"}",
        arch * 10, d->processors, d->shared, d->l2_mib << 20, d->name);
    return text;
  }
  return NULL;
}

int main(int argc, char **argv) {
  char why[1024] = "", text[2048];
  if (argc != 11 || describe(atoi(argv[1]), text, sizeof text) == NULL) {
    fprintf(stderr, "usage: attention_plans 80|90|100 B S T H G D JOINT CAUSAL DETERMINISTIC\n");
    return 2;
  }
  pd_attention_shape z = {
      atoll(argv[2]),    atoll(argv[3]), atoll(argv[4]), atoll(argv[5]), atoll(argv[6]), atoll(argv[7]), 0, 0, 0,
      atoi(argv[9]) != 0};
  if (atoi(argv[8]) != 0) z.q_step = z.k_step = z.v_step = (z.h + 2 * z.g) * z.d; /* q, k and v in one buffer */
  cudnnBackendDescriptor_t device = pd_attention_device_described(text, why, sizeof why);
  if (device == NULL) {
    printf("no device: %s\n", why);
    return 1;
  }
  int built = 0;
  for (int forward = 1; forward >= 0; forward--) {
    pd_attention_plan *plan = pd_attention_plan_make(device, &z, forward != 0, atoi(argv[10]) != 0, why, sizeof why);
    if (plan == NULL) {
      printf("%s: none: %s\n", forward ? "forward" : "backward", why);
      continue;
    }
    printf("%s: %d operations, %lld bytes, %s\n", forward ? "forward" : "backward", pd_attention_operations(plan),
           (long long)pd_attention_workspace(plan), pd_attention_deterministic(plan) ? "deterministic" : "varies");
    pd_attention_plan_free(plan);
    built++;
  }
  cudnnBackendDestroyDescriptor(device);
  return built == 2 ? 0 : 1;
}
