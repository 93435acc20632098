/* Its status is the level of x86-64 that this machine runs. */
#include "../kernels/cpu/isa.h"

int main(void) {
  return fl_cpu_level();
}
