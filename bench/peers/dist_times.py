"""The peer of spec/gpu/dist/times.lua: collectives through PyTorch and NCCL, one process a GPU.
usage: dist_times.py GPUS"""
import os, statistics, sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp
def run(rank, size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file:///tmp/dist_times.{os.getppid()}", rank=rank, world_size=size)
    def tell(name, n, f):
        count = 10 if n > 1 << 26 else 100 if n > 1 << 20 else 1000
        for _ in range(max(3, count // 5)): f()
        times = []
        for _ in range(5):
            dist.barrier(); torch.cuda.synchronize(); start = time.perf_counter()
            for _ in range(count): f()
            torch.cuda.synchronize(); times.append((time.perf_counter() - start) / count)
        if rank == 0: print(f"torch {name} torch {n} {statistics.median(times) * 1e6:.2f}", flush=True)
    for n in (8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 30):
        x = torch.randn(max(1, n // 4), device="cuda")
        tell("all_reduce", n, lambda: dist.all_reduce(x, op=dist.ReduceOp.AVG))
    for n in (1 << 10, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26):
        x = torch.randn(n // 4, device="cuda"); part = torch.randn(n // 4 // size, device="cuda")
        tell("all_gather", n, lambda: dist.all_gather_into_tensor(x, part))
        tell("reduce_scatter", n, lambda: dist.reduce_scatter_tensor(part, x))
        tell("broadcast", n, lambda: dist.broadcast(x, 0))
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(run, args=(int(sys.argv[1]),), nprocs=int(sys.argv[1]))
