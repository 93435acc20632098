--- The simulator in JavaScript, as the page runs it: the same events in the same order as
-- flare.simulate, so that both compute the same numbers.
return [=[
"use strict";

function Heap() { this.list = []; this.count = 0; }
Heap.prototype = {
  earlier(a, b) { return a.time < b.time || (a.time === b.time && a.number < b.number); },
  push(time, event) {
    event.time = time; event.number = this.count++;
    const list = this.list;
    let k = list.length;
    while (k > 0 && this.earlier(event, list[(k - 1) >> 1])) {
      list[k] = list[(k - 1) >> 1];
      k = (k - 1) >> 1;
    }
    list[k] = event;
  },
  pop() {
    const list = this.list, first = list[0], last = list.pop(), n = list.length;
    if (n === 0) return first;
    let k = 0;
    while (2 * k + 1 < n) {
      let child = 2 * k + 1;
      if (child + 1 < n && this.earlier(list[child + 1], list[child])) child++;
      if (!this.earlier(list[child], last)) break;
      list[k] = list[child];
      k = child;
    }
    list[k] = last;
    return first;
  }
};

function Link(of, share) {
  this.rate = of.rate * share; this.latency = of.latency; this.exclusive = of.exclusive;
  this.active = []; this.since = 0; this.version = 0; this.users = 0;
}
Link.prototype = {
  advance(now) {
    const each = this.rate / Math.max(this.active.length, 1) * (now - this.since);
    for (const x of this.active) x.left -= each;
    this.since = now;
  },
  expect(now, heap) {
    this.version++;
    let least = null;
    for (const x of this.active) if (!least || x.left < least.left) least = x;
    if (least) {
      heap.push(now + Math.max(least.left, 0) * this.active.length / this.rate,
        {link: this, version: this.version, transfer: least});
    }
  },
  join(run, now, heap) {
    this.advance(now);
    this.active.push({run: run, left: run.task.transfer});
    this.expect(now, heap);
  },
  ended(event, now, heap) {
    if (event.version !== this.version) return null;
    this.advance(now);
    this.active.splice(this.active.indexOf(event.transfer), 1);
    this.expect(now, heap);
    return event.transfer.run;
  }
};

// Seconds of a cost and what bounds it.
function secondsOf(m, cost, onHost) {
  if (cost.seconds !== undefined) return [cost.seconds, ""];
  if (onHost) return [(cost.bytes || 0) / m.host.rate, "memory"];
  const flops = cost.flops || 0;
  const compute = flops > 0 ? flops / (rateOf(m, cost) * m.share[cost.kind || "other"]) : 0;
  const memory = (cost.bytes || 0) / (m.memory.rate * m.share.memory);
  let bound = compute >= memory ? "compute" : "memory";
  if (m.latency > Math.max(compute, memory)) bound = "latency";
  return [Math.max(compute, memory) + m.latency, bound];
}

function rateOf(m, cost) {
  const rate = m.peak[cost.dtype || "f32"];
  return /^(product|attention|convolution)$/.test(cost.kind || "") ? rate * m.matrix : rate;
}

function simulate(schedule, m) {
  const node = m.node || schedule.devices, nodes = Math.floor((schedule.devices - 1) / node) + 1;
  const nodeOf = (device) => Math.floor((device - 1) / node) + 1;
  const places = new Map(), held = new Map(), lives = [], links = new Map(), heap = new Heap();

  function placeOf(b) {
    const onHost = b.place === "host";
    const name = onHost ? (nodes > 1 ? "host " + nodeOf(b.device) : "host") : "device " + b.device;
    if (!places.has(name)) {
      const cap = onHost ? m.host.bytes : m.memory.bytes;
      places.set(name, {name: name, used: 0, peak: 0, waited: 0,
        cap: cap === undefined ? Infinity : cap});
    }
    return places.get(name);
  }
  function take(b, now) {
    const place = placeOf(b);
    place.used += b.bytes;
    if (place.used > place.peak) place.peak = place.used;
    const life = {name: b.name, bytes: b.bytes, place: place, start: now};
    held.set(b.name, life);
    lives.push(life);
  }
  function lacking(task) {
    const need = new Map();
    for (const b of task.holds) {
      const place = placeOf(b);
      need.set(place, (need.get(place) || 0) + b.bytes);
      if (place.used + need.get(place) > place.cap) return [place, need.get(place)];
    }
    return null;
  }
  function linkOf(task) {
    let name = task.link;
    if (name === "peer" && task.to && nodeOf(task.to) !== nodeOf(task.device)) name = "net";
    const of = m.links[name];
    const way = of.duplex && name === "host" ? (task.stream === "out" ? " out" : " in") : "";
    const key = name + way + (of.shared ? " node " + nodeOf(task.device)
      : " device " + task.device);
    if (!links.has(key)) links.set(key, new Link(of, m.share.link));
    return links.get(key);
  }

  const streams = schedule.streams.map((s) => ({device: s.device, name: s.name, runs: [], head: 0,
    running: false}));
  const runs = schedule.tasks.map((task, i) => {
    const run = {task: task, index: i, left: task.needs.length, stream: streams[task.of],
      ready: null, later: []};
    run.stream.runs.push(run);
    return run;
  });
  for (const run of runs) for (const k of run.task.needs) runs[k].later.push(run);

  function start(run, now) {
    const task = run.task;
    for (const b of task.holds) take(b, now);
    run.start = now;
    run.stream.running = true;
    if (task.transfer === undefined) {
      let sum = 0;
      for (const cost of task.costs) sum += secondsOf(m, cost, task.stream === "host")[0];
      return heap.push(now + sum, {run: run});
    }
    run.link.users++;
    if (run.link.latency > 0) heap.push(now + run.link.latency, {begins: run});
    else run.link.join(run, now, heap);
  }
  function startReady(now) {
    const ready = [];
    for (const stream of streams) {
      const run = stream.runs[stream.head];
      if (run && !stream.running && run.left === 0) {
        if (run.ready === null) run.ready = now;
        ready.push(run);
      }
    }
    ready.sort((a, b) => a.ready - b.ready || a.index - b.index);
    for (const run of ready) {
      if (run.task.transfer !== undefined && !run.link) run.link = linkOf(run.task);
      const lack = lacking(run.task);
      if (lack) {
        run.place = lack[0];
      } else if (!(run.link && run.link.exclusive && run.link.users > 0)) {
        if (run.place) run.place.waited += now - run.ready;
        start(run, now);
      }
    }
  }
  let done = 0;
  function finish(run, now) {
    run.stop = now;
    for (const name of run.task.frees) {
      const life = held.get(name);
      life.stop = now;
      held.delete(name);
      life.place.used -= life.bytes;
    }
    for (const other of run.later) other.left--;
    if (run.link) run.link.users--;
    run.stream.head++;
    run.stream.running = false;
    done++;
  }

  for (const b of schedule.residents) {
    take(b, 0);
    const place = placeOf(b);
    if (place.used > place.cap) return {stuck: place.name + " is too small for what is resident"};
  }
  startReady(0);
  while (heap.list.length > 0) {
    const now = heap.list[0].time;
    while (heap.list.length > 0 && heap.list[0].time === now) {
      const event = heap.pop();
      if (event.begins) {
        event.begins.link.join(event.begins, now, heap);
      } else if (event.link) {
        const run = event.link.ended(event, now, heap);
        if (run) finish(run, now);
      } else {
        finish(event.run, now);
      }
    }
    startReady(now);
  }
  if (done < runs.length) {
    for (const stream of streams) {
      const run = stream.runs[stream.head];
      const lack = run && run.left === 0 && lacking(run.task);
      if (lack) {
        return {stuck: "'" + run.task.name + "' finds no memory on " + lack[0].name + ", after "
          + done + " of " + runs.length + " tasks"};
      }
    }
  }
  return figures(schedule, m, runs, streams, [...places.values()], lives);
}

function figures(schedule, m, runs, streams, places, lives) {
  let time = 0, atPeak = 0, busy = 0, useful = 0;
  for (const run of runs) time = Math.max(time, run.stop);
  const devices = [];
  for (let d = 0; d < schedule.devices; d++) devices.push({busy: 0, useful: 0});
  for (const run of runs) {
    const task = run.task, d = devices[task.device - 1];
    if (task.transfer === undefined && task.stream !== "host") {
      d.busy += run.stop - run.start;
      if (!task.again) {
        d.useful += run.stop - run.start;
        for (const cost of task.costs) if (cost.flops > 0) atPeak += cost.flops / rateOf(m, cost);
      }
    }
  }
  for (const d of devices) { busy += d.busy; useful += d.useful; }
  const all = time * schedule.devices;
  const share = (x) => all > 0 ? x / all : 0;
  const energy = m.power.idle * all + (m.power.busy - m.power.idle) * busy;
  for (const s of streams) {
    s.busy = 0;
    for (const run of s.runs) s.busy += run.stop - run.start;
    s.share = time > 0 ? s.busy / time : 0;
  }
  return {time: time, useful: share(useful), bubble: share(all - busy), utilisation: share(atPeak),
    energy: energy, tokens_per_second: schedule.tokens && time > 0 ? schedule.tokens / time : null,
    joules_per_token: schedule.tokens ? energy / schedule.tokens : null, devices: devices,
    streams: streams, places: places, runs: runs, lives: lives};
}

// A machine with figures changed, in the units of `flare simulate`.
function changed(machine, change) {
  const m = JSON.parse(JSON.stringify(machine));
  for (const [key, value] of Object.entries(change)) {
    if (key === "link") m.links.host.rate = value * 1e9;
    else if (key === "peer" || key === "net") m.links[key].rate = value * 1e9;
    else if (key === "memory") m.memory.bytes = value * 1073741824;
    else if (key === "host") m.host.bytes = value * 1073741824;
    else if (key === "bandwidth") m.memory.rate = value * 1e9;
    else if (key === "latency") m.latency = value * 1e-6;
    else if (key === "matrix") m.matrix = value;
    else if (key === "compute") for (const d of Object.keys(m.peak)) m.peak[d] *= value;
  }
  return m;
}
]=]
