/* Builds cuDNN's plan of an attention for a device that is only described, by the functions that a program calls.
 * usage: attention_plans ARCH B S T H G D CAUSAL GRADIENT ANY_ORDER; prints operations and workspace, or why there is
 * no plan. */
#include "cuda/attention_cudnn.h"
#include "cuda/cudnn_library.h"

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
    fprintf(stderr, "usage: attention_plans 80|90|100 B S T H G D CAUSAL GRADIENT ANY_ORDER\n");
    return 2;
  }
  const pd_attention attention = {.b = atoll(argv[2]),
                                  .s = atoll(argv[3]),
                                  .t = atoll(argv[4]),
                                  .h = atoll(argv[5]),
                                  .g = atoll(argv[6]),
                                  .d = atoll(argv[7]),
                                  .causal = atoi(argv[8]) != 0,
                                  .gradient = atoi(argv[9]) != 0,
                                  .any_order = atoi(argv[10]) != 0};
  cudnnBackendDescriptor_t device = NULL;
  pd_attention_plan *plan = NULL;
  if (pd_cudnn_open(why, sizeof why)) device = pd_attention_device_described(text, why, sizeof why);
  if (device != NULL) plan = pd_attention_plan_make(device, &attention, why, sizeof why);
  if (plan == NULL) {
    printf("none: %s\n", why);
    return 1;
  }
  printf("%d operations, %lld bytes\n", pd_attention_operations(plan), (long long)pd_attention_workspace(plan));
  pd_attention_plan_free(plan);
  pd_cudnn.cudnnBackendDestroyDescriptor(device);
  return 0;
}
