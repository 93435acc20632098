/* The table of the FPGA back end, an emulator: the kernels of this folder,
 * which are C for Vitis HLS, run as plain C and count the cycles that the
 * pipelines would take. Memory is the host's. An operator without a kernel is
 * run by the CPU, and counted, or refused. */
#include "fpga.h"

#include <stdlib.h>

#define CLOCK_RATE 300e6 /* Hz; the usual one of kernels on an Alveo U250 */

static const char *const part_names[FL_FPGA_PARTS] = {
    "product", "softmax", "lookup", "elementwise", "attention"};

static fl_fpga *fpga_of(fl_backend *b) {
  return b->state;
}

static int fpga_device_count(fl_backend *b) {
  (void)b;
  return 1;
}

static fl_kernel fpga_kernel(fl_backend *b, const char *op) {
  fl_backend *cpu = fpga_of(b)->cpu;
  return cpu->kernel(cpu, op);
}

static fl_status note_on_cpu(fl_fpga *f, const char *op) {
  for (int i = 0; i < f->n_on_cpu; i++)
    if (strcmp(f->on_cpu[i].name, op) == 0) {
      f->on_cpu[i].calls++;
      return FL_OK;
    }
  if (f->n_on_cpu == f->room) {
    int room = f->room ? 2 * f->room : 16;
    fl_fpga_count *more = realloc(f->on_cpu, (size_t)room * sizeof *more);
    if (!more)
      return fli_fail(FL_ENOMEM, "fpga: no memory for a counter");
    f->on_cpu = more;
    f->room = room;
  }
  f->on_cpu[f->n_on_cpu++] = (fl_fpga_count){op, 1};
  return FL_OK;
}

static fl_status refuse_launch(const char *op, bool known) {
  char names[256] = "";
  for (int i = 0, n = 0; fl_fpga_name(i); i++)
    n += fli_snprintf(names + n, sizeof names - (size_t)n, "%s%s",
                      i ? ", " : "", fl_fpga_name(i));
  return fli_fail(FL_EUNSUPPORTED,
                  "%s: the FPGA has no kernel for %s; it has kernels for %s of "
                  "f32 tensors, and after flare.fpga.fallback(true) the CPU "
                  "runs the rest",
                  op, known ? "these operands" : op, names);
}

static fl_status fpga_launch(fl_backend *b, fl_kernel k, const fl_launch *l) {
  fl_fpga *f = fpga_of(b);
  fl_fpga_driver drive = fl_fpga_find(l->op);
  fl_status s = drive && !l->writes ? drive(f, l) : FL_EUNSUPPORTED;
  if (s != FL_EUNSUPPORTED || l->probe)
    return l->probe ? k(l) : s;
  if (!f->fallback)
    return refuse_launch(l->op, drive != NULL);
  s = note_on_cpu(f, l->op);
  if (s != FL_OK)
    return s;
  return f->cpu->launch ? f->cpu->launch(f->cpu, k, l) : k(l);
}

static fl_status fpga_alloc(fl_backend *b, int device, size_t bytes,
                            void **memory) {
  fl_backend *cpu = fpga_of(b)->cpu;
  return cpu->alloc(cpu, device, bytes, memory);
}

static void fpga_release(fl_backend *b, int device, void *memory,
                         size_t bytes) {
  fl_backend *cpu = fpga_of(b)->cpu;
  cpu->release(cpu, device, memory, bytes);
}

static fl_status fpga_control(fl_backend *b, const char *what, double value) {
  fl_fpga *f = fpga_of(b);
  if (strcmp(what, "fallback") == 0) {
    f->fallback = value != 0;
  } else if (strcmp(what, "reset") == 0) {
    memset(f->cycles, 0, sizeof f->cycles);
    memset(f->calls, 0, sizeof f->calls);
    f->n_on_cpu = 0;
  } else {
    return fli_fail(
        FL_EARG, "fpga has no control \"%s\"; it has fallback and reset", what);
  }
  return FL_OK;
}

/* "report": JSON with the cycles of the kernels, and what the CPU ran. */
static fl_status fpga_query(fl_backend *b, const char *what,
                            const char *argument, char **text) {
  fl_fpga *f = fpga_of(b);
  (void)argument;
  if (strcmp(what, "report") != 0)
    return fli_fail(FL_EARG, "fpga tells nothing of \"%s\", only \"report\"",
                    what);
  size_t room = 1024 + (size_t)f->n_on_cpu * 96, n = 0;
  char *out = malloc(room);
  if (!out)
    return fli_fail(FL_ENOMEM, "fpga: no memory for a report");
  n += (size_t)fli_snprintf(out + n, room - n,
                            "{\"clock\": %.0f, \"fallback\": %s, "
                            "\"kernels\": {",
                            CLOCK_RATE, f->fallback ? "true" : "false");
  for (int i = 0; i < FL_FPGA_PARTS; i++)
    n += (size_t)fli_snprintf(
        out + n, room - n, "%s\"%s\": {\"calls\": %lld, \"cycles\": %lld}",
        i ? ", " : "", part_names[i], (long long)f->calls[i],
        (long long)f->cycles[i].cycles);
  n += (size_t)fli_snprintf(out + n, room - n, "}, \"cpu\": {");
  for (int i = 0; i < f->n_on_cpu; i++)
    n += (size_t)fli_snprintf(out + n, room - n, "%s\"%.60s\": %lld",
                              i ? ", " : "", f->on_cpu[i].name,
                              (long long)f->on_cpu[i].calls);
  fli_snprintf(out + n, room - n, "}}");
  *text = out;
  return FL_OK;
}

static void fpga_close(fl_backend *b) {
  fl_fpga *f = fpga_of(b);
  for (int i = 0; i < FL_FPGA_TABLES; i++)
    free(f->tables[i]);
  free(f->on_cpu);
  free(f);
}

fl_status fl_fpga_open(const fl_backend_options *o, fl_backend *cpu,
                       fl_backend **b);

fl_status fl_fpga_open(const fl_backend_options *o, fl_backend *cpu,
                       fl_backend **b) {
  (void)o;
  fl_fpga *f = calloc(1, sizeof *f);
  if (!f)
    return fli_fail(FL_ENOMEM, "out of memory: the fpga backend");
  f->cpu = cpu;
  f->fallback = true;
  f->table = (fl_backend){.struct_size = sizeof(fl_backend),
                          .name = "fpga",
                          .flags = FL_BACKEND_HOST,
                          .state = f,
                          .device_count = fpga_device_count,
                          .kernel = fpga_kernel,
                          .launch = fpga_launch,
                          .alloc = fpga_alloc,
                          .release = fpga_release,
                          .control = fpga_control,
                          .query = fpga_query,
                          .close = fpga_close};
  *b = &f->table;
  return FL_OK;
}
