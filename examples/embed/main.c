/* A C program with flare inside: it hands a tensor of its own memory to a Lua
 * script, which trains on it, calls the script's functions, and reads the
 * weights where they lie. Build it from an installed flare by either
 *
 *   cmake -B build && cmake --build build
 *   cc main.c $(pkg-config --cflags --libs flarelua lua5.4) -o embed
 */
#include <flare/flarelua.h>

#include <stdio.h>
#include <stdlib.h>

#define ROWS 64

static int fail(const char *what, fl_lua *f) {
  fprintf(stderr, "%s: %s\n%s\n", what, fl_error(),
          f ? fl_lua_traceback(f) : "");
  fl_lua_close(f);
  return EXIT_FAILURE;
}

/* The program's own data: y = 3 x + 0.5. */
static void make_data(float *x, float *y) {
  for (int i = 0; i < ROWS; i++) {
    x[i] = (float)i / ROWS - 0.5f;
    y[i] = 3 * x[i] + 0.5f;
  }
}

int main(int argc, char **argv) {
  static float x[ROWS], y[ROWS];
  const char *script = argc > 1 ? argv[1] : "train.lua";
  fl_lua *f = NULL;
  fl_tensor *tx = NULL, *ty = NULL, *weight = NULL;
  double loss = 0;

  if (fl_lua_open(NULL, &f) != FL_OK)
    return fail("open", NULL);
  if (fl_lua_run_file(f, script, 0, NULL) != FL_OK)
    return fail(script, f);

  /* tensors over x and y: nothing is copied */
  fl_runtime *rt = fl_lua_runtime(f);
  int64_t shape[2] = {ROWS, 1};
  make_data(x, y);
  if (fl_tensor_wrap(rt, x, FL_F32, 2, shape, NULL, NULL, &tx) != FL_OK ||
      fl_tensor_wrap(rt, y, FL_F32, 2, shape, NULL, NULL, &ty) != FL_OK)
    return fail("wrap", f);

  if (fl_lua_call(f, "train", "tti>d", tx, ty, (int64_t)200, &loss) != FL_OK)
    return fail("train", f);
  printf("loss %.6f\n", loss);

  /* the script's weight, read in place */
  if (fl_lua_get(f, "model.weight", 't', &weight) != FL_OK)
    return fail("model.weight", f);
  const float *w = fl_tensor_data(weight);
  printf("weight %.2f\n", w ? (double)w[0] : 0);

  fl_tensor_release(weight);
  fl_tensor_release(tx);
  fl_tensor_release(ty);
  fl_lua_close(f);
  return loss < 1e-3 ? EXIT_SUCCESS : EXIT_FAILURE;
}
