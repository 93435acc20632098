/* Which backends and which engines for collectives come with the library:
 * explicit tables. The runtime opens the backends in this order; the first must
 * be the CPU: the others may borrow its kernels. Engines are opened by name. */
#include "../runtime/comm.h"

fl_status fl_cpu_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b);
fl_status fl_sim_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b);
fl_status fl_fpga_open(const fl_backend_options *o, fl_backend *cpu,
                       fl_backend **b);
fl_status fl_cuda_open(const fl_backend_options *o, fl_backend *cpu,
                       fl_backend **b);
fl_status fl_dry_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b);

const fl_builtin_backend *fl_builtin_backends(int *n) {
  static const fl_builtin_backend all[] = {
      {"cpu", fl_cpu_open},   {"sim", fl_sim_open}, {"fpga", fl_fpga_open},
      {"cuda", fl_cuda_open}, {"dry", fl_dry_open}, /* opened by flare.plan */
  };
  *n = (int)(sizeof all / sizeof *all);
  return all;
}

fl_status fl_host_open(const fl_comm_options *o, fl_comm **c);
fl_status fl_nccl_open(const fl_comm_options *o, fl_comm **c);

const fl_builtin_comm *fl_builtin_comms(int *n) {
  static const fl_builtin_comm all[] = {
      {"host", fl_host_open},
      {"nccl", fl_nccl_open},
  };
  *n = (int)(sizeof all / sizeof *all);
  return all;
}
