"""The peer of spec/gpu/dist/times.lua: all_reduce through PyTorch and NCCL, one process a GPU.
usage: dist_times.py GPUS"""
import os, statistics, sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp
def run(rank, size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file:///tmp/dist_times.{os.getppid()}", rank=rank, world_size=size)
    for n in (8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 30):
        x = torch.randn(max(1, n // 4), device="cuda"); count = 10 if n > 1 << 26 else 100 if n > 1 << 20 else 1000
        f = lambda: dist.all_reduce(x, op=dist.ReduceOp.AVG)
        for _ in range(max(3, count // 5)): f()
        times = []
        for _ in range(5):
            dist.barrier(); torch.cuda.synchronize(); start = time.perf_counter()
            for _ in range(count): f()
            torch.cuda.synchronize(); times.append((time.perf_counter() - start) / count)
        if rank == 0: print(f"torch nccl {n} {statistics.median(times) * 1e6:.2f}", flush=True)
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(run, args=(int(sys.argv[1]),), nprocs=int(sys.argv[1]))
