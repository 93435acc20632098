/* Which backends come with the library: an explicit table that the runtime
 * opens in this order. The first must be the CPU: the others may borrow its
 * kernels. */
#include "../runtime/backend.h"

fl_status fl_cpu_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b);
fl_status fl_sim_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b);
fl_status fl_cuda_open(const fl_backend_options *o, fl_backend *cpu,
                       fl_backend **b);

const fl_builtin_backend *fl_builtin_backends(int *n) {
  static const fl_builtin_backend all[] = {
      {"cpu", fl_cpu_open},
      {"sim", fl_sim_open},
      {"cuda", fl_cuda_open},
  };
  *n = (int)(sizeof all / sizeof *all);
  return all;
}
