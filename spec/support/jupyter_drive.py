"""Drives the kernel by jupyter_client, for spec/jupyter_spec.lua: prints what each step gave as JSON.

    python spec/support/jupyter_drive.py FOLDER-OF-KERNELS
"""
import json
import queue
import sys
import time

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

manager = KernelManager(kernel_name="flare",
                        kernel_spec_manager=KernelSpecManager(kernel_dirs=[sys.argv[1]]))
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=30)
out = {"messages": []}
deserialize = client.session.deserialize


def note(*a, **o):
    """Keeps every message that comes, for the check of its fields."""
    message = deserialize(*a, **o)
    kept = {name: message[name] for name in ("header", "metadata", "content")}
    out["messages"].append({**kept, "parent": message["parent_header"]})
    return message


client.session.deserialize = note


def run(code, **o):
    """Runs a cell; returns the reply and what was published for it."""
    heard = []
    answer = o.pop("answer", None)
    interrupt = o.pop("interrupt", False)
    request = client.execute(code, **o)
    if interrupt:
        time.sleep(0.3)
        manager.interrupt_kernel()
    if answer is not None:
        client.get_stdin_msg(timeout=20)
        client.input(answer)
    reply = client.get_shell_msg(timeout=30)
    while True:
        message = client.get_iopub_msg(timeout=20)
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            return reply["content"], heard
        if kind not in ("status", "execute_input"):
            heard.append([kind, content])


def ask(request):
    while True:
        reply = client.get_shell_msg(timeout=20)
        if reply["parent_header"]["msg_id"] == request:
            return reply["content"]


out["value"] = run("local x = 20\nx * 2 + 2")
out["kept"] = run("x")
out["print"] = run("print('a', 1); io.write 'b'; io.stderr:write 'c';")
out["units"] = run("y = 1\ny\ny + 1")
out["tensor"] = run("flare.tensor{{1, 2}, {3, 4}}")
out["svg"] = run("'<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>'")
out["image"] = run("display.image(flare.rand(3, 4, 4))")
out["display"] = run("local h = display(1); h:update(2);")
out["error"] = run("local function f() error 'broken' end\nf()")
out["syntax"] = run("x = = 3")
out["input"] = run("local name = io.read()\nprint('hello ' .. name)", answer="you")
out["help"] = run("?softmax")
out["expressions"] = run("z = 5", user_expressions={"a": "z * 2", "b": "no.such"})
out["silent"] = run("1 + 1", silent=True)
begun = time.time()
out["interrupt"] = run("while true do end", interrupt=True)
out["took"] = time.time() - begun
manager.interrupt_kernel()  # while nothing runs
out["after"] = run("x")
out["interrupt_call"] = run("local a = flare.randn(600, 600); for i = 1, 1e9 do a = a:matmul(a):tanh() end",
                            interrupt=True)
out["interrupt_input"] = run("io.read()", interrupt=True)
out["interrupt_pattern"] = run("('a'):rep(60):find(('a*'):rep(40) .. 'b')", interrupt=True)
out["interrupt_command"] = run("os.execute 'sleep 100'", interrupt=True)
out["interrupt_pipe"] = run("io.popen('sleep 100'):read 'a'", interrupt=True)
first = client.execute("os.execute 'sleep 0.5'; error 'stop'")  # the second waits meanwhile
second = client.execute("x")
out["aborted"] = [ask(first), ask(second)]
out["complete"] = ask(client.complete("'é'; flare.softm", 16))
out["inspect"] = ask(client.inspect("flare.nn.Linear(3, 4)", 12))
out["nothing"] = ask(client.inspect("no_such_name", 4))
out["whole"] = [ask(client.is_complete(t))["status"]
                for t in ("x = 1", "for i = 1, 3 do", "x = = 2", "f(", ":mem")]
out["history"] = ask(client.history(hist_access_type="tail", n=3))
info = client.kernel_info()
out["info"] = ask(info)
out["alive"] = client.hb_channel.is_beating()
manager.restart_kernel(now=False)
client.wait_for_ready(timeout=30)
out["restarted"] = run("x")
manager.shutdown_kernel(now=False)
for _ in range(50):
    if not manager.is_alive():
        break
    time.sleep(0.1)
out["ended"] = not manager.is_alive()
print(json.dumps(out, default=str))
