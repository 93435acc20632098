/* NVRTC 13.0 that compiles anything into an image of the same 64 bytes; the
 * names are added to the file FAKE_COMPILED, a line for each. Kernels "tile"
 * are compiled when the file FAKE_TILES exists; where it says "fail", they
 * cannot be. */
#include "../../../kernels/cuda/driver/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RTC(ret, name, symbol, params) ret symbol params;
#define FLC_RTC                        RTC
#include "../../../kernels/cuda/driver/dl.def"

nvrtcResult nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char *text) {
  const char *path = getenv("FAKE_COMPILED");
  FILE *f = path ? fopen(path, "a") : NULL;
  (void)program;
  if (f) {
    fprintf(f, "%s\n", text);
    fclose(f);
  }
  return 0;
}

/* Waits for the file; whether the kernel can be compiled. */
static int may_compile(const char *text) {
  const char *path = getenv("FAKE_TILES");
  char word[8] = "";
  if (!path || strcmp(text, "tile") != 0)
    return 1;
  while (access(path, R_OK) != 0)
    usleep(1000);
  FILE *f = fopen(path, "r");
  int read = f ? fscanf(f, "%7s", word) : 0;
  if (f)
    fclose(f);
  return read != 1 || strcmp(word, "fail") != 0;
}

nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char *text,
                                const char **name) {
  static char names[64][128];
  static unsigned turn;
  (void)program;
  if (!may_compile(text))
    return 1;
  char *to = names[turn++ % 64];
  snprintf(to, sizeof names[0], "%s", text);
  *name = to;
  return 0;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
  (void)program;
  *bytes = 64;
  return 0;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *image) {
  (void)program;
  memset(image, 7, 64);
  return 0;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
  (void)program;
  *bytes = 1;
  return 0;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
  (void)program;
  *log = 0;
  return 0;
}
