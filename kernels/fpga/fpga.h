/* The FPGA back end: fpga.c has its table, counters and what the CPU does in
 * its place; driver.c calls the kernels for launches of operators. */
#ifndef FL_FPGA_H
#define FL_FPGA_H

#include "../../runtime/view.h"
#include "kernels.h"

typedef enum fl_fpga_part {
  FL_FPGA_PRODUCT,
  FL_FPGA_SOFTMAX,
  FL_FPGA_LOOKUP,
  FL_FPGA_ELEMENTWISE,
  FL_FPGA_ATTENTION,
  FL_FPGA_PARTS
} fl_fpga_part;

/* Tables of functions, made when one is first used. */
typedef enum fl_fpga_table {
  FL_FPGA_EXP, /* on [-16, 0]; the others on [-16, 16] */
  FL_FPGA_GELU,
  FL_FPGA_GELU_TANH,
  FL_FPGA_SILU,
  FL_FPGA_TANH,
  FL_FPGA_SIGMOID,
  FL_FPGA_TABLES
} fl_fpga_table;

typedef struct fl_fpga_count {
  const char *name;
  int64_t calls;
} fl_fpga_count;

typedef struct fl_fpga {
  fl_backend table;
  fl_backend *cpu;
  bool fallback; /* the CPU runs what has no kernel */
  fpga_clock cycles[FL_FPGA_PARTS];
  int64_t calls[FL_FPGA_PARTS];
  int32_t *tables[FL_FPGA_TABLES];
  fl_fpga_count *on_cpu; /* operators that the CPU ran */
  int n_on_cpu, room;
} fl_fpga;

/* A launch on the FPGA; FL_EUNSUPPORTED without a message: there is no kernel
 * for these operands. */
typedef fl_status (*fl_fpga_driver)(fl_fpga *f, const fl_launch *l);

/* NULL: there is no kernel for the operator. */
fl_fpga_driver fl_fpga_find(const char *op);
/* The i-th operator that has one, NULL after the last. */
const char *fl_fpga_name(int i);

#endif
