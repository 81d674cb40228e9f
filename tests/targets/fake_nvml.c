/* An NVML library without a GPU. A file says what its cards do, read anew at each question:

     scene=healthy|idle|spinning|throttled|xid|wedged|lost   gpus=N   gpm=0|1   lanes=N   pids=P:P:P   foreign=PID

   pids: one process a card, in order. A wedged card answers nothing, for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int nvml_return;
enum { OK = 0, NOT_SUPPORTED = 3, INSUFFICIENT = 7, TIMEOUT = 10, LOST = 15 };

typedef struct { u64 total, free, used; } memory;
typedef struct { u32 gpu, memory; } rates;
typedef struct { u32 pid; u64 used; u32 gi, ci; } process;
typedef struct { void *device; u64 type, data; u32 gi, ci; } event;
typedef struct { u32 version, supported; } gpm_support;
typedef struct { u32 id; nvml_return ret; double value; const char *info[3]; } metric;
typedef struct { u32 version, count; void *one, *two; metric metrics[]; } metrics;
typedef struct { u32 field, scope; long long stamp, latency; int kind; nvml_return ret; union { double d; u64 u; } value; } field;

static char scene[32] = "healthy";
static int gpus = 1, gpm = 1, lanes = 16, pids[64], foreign, xid_told;
static u64 asked;

static void look(void) {
  const char *path = getenv("FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  char word[256];
  if (!file) return;
  while (fscanf(file, "%255s", word) == 1) {
    char *value = strchr(word, '=');
    if (!value) continue;
    *value++ = 0;
    if (!strcmp(word, "scene")) snprintf(scene, sizeof scene, "%s", value);
    else if (!strcmp(word, "gpus")) gpus = atoi(value);
    else if (!strcmp(word, "gpm")) gpm = atoi(value);
    else if (!strcmp(word, "lanes")) lanes = atoi(value);
    else if (!strcmp(word, "foreign")) foreign = atoi(value);
    else if (!strcmp(word, "pids")) {
      int n = 0;
      for (char *at = strtok(value, ":"); at && n < 64; at = strtok(NULL, ":")) pids[n++] = atoi(at);
    }
  }
  fclose(file);
}

static int is(const char *name) { return !strcmp(scene, name); }
static int number(void *device) { return (int)((size_t)device - 0x1000); }
static int works(void) { return is("healthy") || is("throttled"); }
static int full(void) { return works() || is("spinning") || is("xid"); }

nvml_return nvmlInitWithFlags(u32 flags) { (void)flags; look(); return OK; }
nvml_return nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(nvml_return code) { (void)code; return "an error of the fake"; }
nvml_return nvmlSystemGetDriverVersion(char *text, u32 size) { snprintf(text, size, "999.1"); return OK; }
nvml_return nvmlDeviceGetCount_v2(u32 *count) { *count = gpus; return OK; }
nvml_return nvmlDeviceGetHandleByIndex_v2(u32 index, void **device) { *device = (void *)(size_t)(0x1000 + index); return OK; }
nvml_return nvmlDeviceGetIndex(void *device, u32 *index) { *index = number(device); return OK; }
nvml_return nvmlDeviceGetMinorNumber(void *device, u32 *minor) { *minor = number(device); return OK; }
nvml_return nvmlDeviceGetUUID(void *device, char *text, u32 size) { snprintf(text, size, "GPU-%d", number(device)); return OK; }
nvml_return nvmlDeviceGetName(void *device, char *text, u32 size) { (void)device; snprintf(text, size, "Fake 100"); return OK; }
nvml_return nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { (void)device; *major = 9; *minor = 0; return OK; }

nvml_return nvmlDeviceGetMemoryInfo(void *device, memory *told) {
  look();
  asked++;
  while (is("wedged")) pause();
  if (is("lost") && number(device) == 0) return LOST;
  told->total = 80ull << 30;
  told->used = is("idle") ? 1ull << 30 : (10ull << 30) + (works() ? (asked % 64) * (64ull << 20) : 0);
  told->free = told->total - told->used;
  return OK;
}

nvml_return nvmlDeviceGetUtilizationRates(void *device, rates *told) {
  (void)device;
  told->gpu = full() ? 100 : 0;
  told->memory = works() ? 40 : 0;
  return OK;
}

nvml_return nvmlDeviceGetPowerUsage(void *device, u32 *mw) { (void)device; *mw = works() ? 550000 : full() ? 120000 : 70000; return OK; }
nvml_return nvmlDeviceGetEnforcedPowerLimit(void *device, u32 *mw) { (void)device; *mw = 700000; return OK; }
nvml_return nvmlDeviceGetCurrentClocksEventReasons(void *device, u64 *bits) { (void)device; *bits = is("throttled") ? 0x44 : 0x4; return OK; }
nvml_return nvmlDeviceGetPcieThroughput(void *device, int counter, u32 *kb) { (void)device; (void)counter; *kb = works() ? 2000000 : 300; return OK; }
nvml_return nvmlDeviceGetClockInfo(void *device, int which, u32 *mhz) { (void)device; (void)which; *mhz = is("throttled") ? 600 : 1980; return OK; }
nvml_return nvmlDeviceGetTemperature(void *device, int which, u32 *c) { (void)device; (void)which; *c = is("throttled") ? 92 : 45; return OK; }
nvml_return nvmlDeviceGetCurrPcieLinkGeneration(void *device, u32 *n) { (void)device; *n = 5; return OK; }
nvml_return nvmlDeviceGetMaxPcieLinkGeneration(void *device, u32 *n) { (void)device; *n = 5; return OK; }
nvml_return nvmlDeviceGetCurrPcieLinkWidth(void *device, u32 *n) { (void)device; *n = lanes; return OK; }
nvml_return nvmlDeviceGetMaxPcieLinkWidth(void *device, u32 *n) { (void)device; *n = 16; return OK; }

nvml_return nvmlDeviceGetComputeRunningProcesses_v3(void *device, u32 *count, process *rows) {
  u32 n = 0;
  process mine[2];
  memset(mine, 0, sizeof mine);
  if (number(device) < 64 && pids[number(device)]) mine[n].pid = pids[number(device)], mine[n++].used = 9ull << 30;
  if (foreign) mine[n].pid = foreign, mine[n++].used = 1ull << 30;
  if (*count < n) { *count = n; return INSUFFICIENT; }
  memcpy(rows, mine, n * sizeof *mine);
  *count = n;
  return OK;
}

nvml_return nvmlDeviceGetFieldValues(void *device, int count, field *values) {
  (void)device;
  for (int i = 0; i < count; i++) values[i].ret = OK, values[i].value.u = works() ? asked * 1000000 : 5;
  return OK;
}

nvml_return nvmlEventSetCreate(void **set) { *set = (void *)1; return OK; }
nvml_return nvmlDeviceRegisterEvents(void *device, u64 kinds, void *set) { (void)device; (void)kinds; (void)set; return OK; }
nvml_return nvmlEventSetWait_v2(void *set, event *told, u32 ms) {
  (void)set; (void)ms;
  look();
  if (!is("xid") || xid_told) return TIMEOUT;
  xid_told = 1;
  memset(told, 0, sizeof *told);
  told->device = (void *)0x1000, told->type = 8, told->data = 79;
  return OK;
}

nvml_return nvmlGpmQueryDeviceSupport(void *device, gpm_support *told) { (void)device; told->supported = gpm; return OK; }
nvml_return nvmlGpmSampleAlloc(void **sample) { *sample = malloc(8); return OK; }
nvml_return nvmlGpmSampleFree(void *sample) { free(sample); return OK; }
nvml_return nvmlGpmSampleGet(void *device, void *sample) { (void)device; (void)sample; return OK; }
nvml_return nvmlGpmMetricsGet(metrics *asked_for) {
  for (u32 i = 0; i < asked_for->count; i++) {
    metric *one = &asked_for->metrics[i];
    one->ret = OK;
    one->value = one->id == 2 ? (full() ? 99 : 0) : one->id == 10 ? (works() ? 35 : 0.1) : works() ? 1500 : 0.5;
  }
  return OK;
}
