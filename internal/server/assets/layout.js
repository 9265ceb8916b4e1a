// Layered layout of a graph, as pure functions over plain values.
//
// What comes in are boxes with a level and a height, and what each of them needs;
// what goes out is a place for each box and a way for each line. The order within
// a level follows the barycentres of the neighbours (Sugiyama, Tagawa, Toda:
// Methods for visual understanding of hierarchical system structures, 1981), the
// best of some sweeps by the number of crossings; the places within a level are
// those nearest to the neighbours' that keep the order and the gaps. The same
// input always gives the same picture.

const SWEEPS = 12;
const MAX_BENDS = 6000; // points that long lines bend at; with more they are drawn straight

/**
 * @param {{id: string, level: number, height: number, needs: string[]}[]} boxes
 * @param {{width?: number, gapX?: number, gapY?: number, pad?: number}} [options] in pixels
 * @returns {{places: Map<string, {x: number, y: number, height: number, level: number, order: number}>,
 *   lines: {from: string, to: string, points: {x: number, y: number}[]}[],
 *   width: number, height: number, crossings: number}} x and y are a box's upper left corner
 */
export function layout(boxes, options = {}) {
  const {width = 200, gapX = 64, gapY = 16, pad = 16} = options;
  const levels = levelsOf(boxes);
  const {vertices, edges, lines} = graphOf(boxes, levels);
  const layers = layersOf(vertices);
  const crossings = order(layers, edges);
  arrange(layers, edges, gapY);
  return placed(vertices, lines, layers, {width, gapX, pad, crossings});
}

// levelsOf returns each box's level: the one it says, or a later one if it would
// not be behind all that it needs. Circles, which no valid graph has, end the way.
export function levelsOf(boxes) {
  const byId = new Map(boxes.map((b) => [b.id, b]));
  const levels = new Map();
  const visit = (root) => {
    const stack = [{box: root, next: 0, level: Math.max(0, root.level || 0)}];
    const open = new Set([root.id]);
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const need = (top.box.needs || [])[top.next];
      if (need === undefined) {
        levels.set(top.box.id, top.level);
        open.delete(top.box.id);
        stack.pop();
        const below = stack[stack.length - 1];
        if (below) below.level = Math.max(below.level, top.level + 1);
        continue;
      }
      top.next += 1;
      if (levels.has(need)) top.level = Math.max(top.level, levels.get(need) + 1);
      else if (byId.has(need) && !open.has(need)) {
        const box = byId.get(need);
        open.add(need);
        stack.push({box, next: 0, level: Math.max(0, box.level || 0)});
      }
    }
  };
  for (const b of boxes) if (!levels.has(b.id)) visit(b);
  return levels;
}

// graphOf makes a vertex of each box, and of each level that a line only passes.
function graphOf(boxes, levels) {
  const vertices = new Map();
  for (const b of boxes) {
    vertices.set(b.id, {id: b.id, level: levels.get(b.id), height: b.height, up: [], down: [], y: 0});
  }
  const edges = [];
  const lines = [];
  let bends = 0;
  for (const b of boxes) {
    for (const need of b.needs || []) {
      const from = vertices.get(need);
      const to = vertices.get(b.id);
      if (!from || from === to || from.level >= to.level) continue;
      const line = {from: need, to: b.id, through: []};
      let last = from;
      if (bends + to.level - from.level <= MAX_BENDS) {
        for (let level = from.level + 1; level < to.level; level++) {
          const bend = {id: `${need}\u0000${b.id}\u0000${level}`, level, height: 0, up: [], down: [], y: 0};
          vertices.set(bend.id, bend);
          line.through.push(bend);
          join(edges, last, bend);
          last = bend;
          bends += 1;
        }
      }
      join(edges, last, to);
      lines.push(line);
    }
  }
  return {vertices, edges, lines};
}

function join(edges, from, to) {
  edges.push({from, to});
  from.down.push(to);
  to.up.push(from);
}

function layersOf(vertices) {
  const layers = [];
  for (const v of vertices.values()) {
    while (layers.length <= v.level) layers.push([]);
    v.order = layers[v.level].length;
    layers[v.level].push(v);
  }
  return layers;
}

// order sorts each layer so that few lines cross, and returns how many do.
function order(layers, edges) {
  const number = (layer) =>
    layer.forEach((v, i) => {
      v.order = i;
    });
  let best = layers.map((layer) => [...layer]);
  let least = countCrossings(layers, edges);
  for (let sweep = 0; sweep < SWEEPS && least > 0; sweep++) {
    const forward = sweep % 2 === 0;
    for (let i = 0; i < layers.length; i++) {
      const layer = layers[forward ? i : layers.length - 1 - i];
      const centre = new Map(layer.map((v) => [v, barycentre(forward ? v.up : v.down, v.order)]));
      layer.sort((a, b) => centre.get(a) - centre.get(b) || a.order - b.order);
      number(layer);
    }
    const now = countCrossings(layers, edges);
    if (now < least) {
      least = now;
      best = layers.map((layer) => [...layer]);
    }
  }
  layers.forEach((layer, i) => {
    layers[i] = best[i];
    number(best[i]);
  });
  return least;
}

function barycentre(neighbours, own) {
  if (neighbours.length === 0) return own;
  let sum = 0;
  for (const n of neighbours) sum += n.order;
  return sum / neighbours.length;
}

// countCrossings counts, for each pair of neighbouring layers, the pairs of lines
// whose ends are in opposite order, in n log n (a Fenwick tree over the ends).
export function countCrossings(layers, edges) {
  const between = layers.map(() => []);
  for (const e of edges) if (e.to.level === e.from.level + 1) between[e.from.level].push(e);
  let crossings = 0;
  between.forEach((list, level) => {
    if (list.length < 2) return;
    list.sort((a, b) => a.from.order - b.from.order || a.to.order - b.to.order);
    const size = layers[level + 1].length;
    const tree = new Array(size + 1).fill(0);
    list.forEach((e, seen) => {
      let notAfter = 0;
      for (let i = e.to.order + 1; i > 0; i -= i & -i) notAfter += tree[i];
      crossings += seen - notAfter;
      for (let i = e.to.order + 1; i <= size; i += i & -i) tree[i] += 1;
    });
  });
  return crossings;
}

// arrange gives each vertex the y of its middle.
function arrange(layers, edges, gapY) {
  for (const layer of layers)
    spread(
      layer,
      layer.map(() => 0),
      gapY,
    );
  for (let sweep = 0; sweep < 8; sweep++) {
    const forward = sweep % 2 === 0;
    for (let i = 0; i < layers.length; i++) {
      const layer = layers[forward ? i : layers.length - 1 - i];
      const wanted = layer.map((v) => {
        const near = forward ? v.up : v.down;
        const list = near.length > 0 ? near : forward ? v.down : v.up;
        return list.length === 0 ? null : list.reduce((sum, n) => sum + n.y, 0) / list.length;
      });
      close(wanted);
      spread(layer, wanted, gapY);
    }
  }
}

// close wants what hangs together with nothing beside what lies before it in its
// layer, else behind it, so that it takes no room of its own.
function close(wanted) {
  for (let i = 1; i < wanted.length; i++) wanted[i] ??= wanted[i - 1];
  for (let i = wanted.length - 2; i >= 0; i--) wanted[i] ??= wanted[i + 1];
  for (let i = 0; i < wanted.length; i++) wanted[i] ??= 0;
}

// spread puts the vertices of a layer, in their order, as near to where they are
// wanted as the gaps allow: the least squares, by pooling those that collide.
export function spread(layer, wanted, gap) {
  const offsets = [0];
  for (let i = 1; i < layer.length; i++) {
    const between = layer[i - 1].height === 0 || layer[i].height === 0 ? gap / 2 : gap;
    offsets.push(offsets[i - 1] + (layer[i - 1].height + layer[i].height) / 2 + between);
  }
  const pools = [];
  for (let i = 0; i < layer.length; i++) {
    let pool = {sum: wanted[i] - offsets[i], count: 1};
    while (pools.length > 0 && pools[pools.length - 1].sum / pools[pools.length - 1].count > pool.sum / pool.count) {
      const before = pools.pop();
      pool = {sum: before.sum + pool.sum, count: before.count + pool.count};
    }
    pools.push(pool);
  }
  let i = 0;
  for (const pool of pools) {
    for (let n = 0; n < pool.count; n++, i++) layer[i].y = pool.sum / pool.count + offsets[i];
  }
}

function placed(vertices, lines, layers, {width, gapX, pad, crossings}) {
  let top = Infinity;
  let bottom = -Infinity;
  for (const v of vertices.values()) {
    top = Math.min(top, v.y - v.height / 2);
    bottom = Math.max(bottom, v.y + v.height / 2);
  }
  if (vertices.size === 0) top = bottom = 0;
  const x = (level) => pad + level * (width + gapX);
  const y = (v) => v.y - top + pad;
  const places = new Map();
  for (const v of vertices.values()) {
    if (v.id.includes('\u0000')) continue;
    places.set(v.id, {x: x(v.level), y: y(v) - v.height / 2, height: v.height, level: v.level, order: v.order});
  }
  return {
    places,
    lines: lines.map(({from, to, through}) => {
      const a = vertices.get(from);
      const b = vertices.get(to);
      const points = [{x: x(a.level) + width, y: y(a)}];
      for (const bend of through) {
        points.push({x: x(bend.level), y: y(bend)}, {x: x(bend.level) + width, y: y(bend)});
      }
      points.push({x: x(b.level), y: y(b)});
      return {from, to, points};
    }),
    width: layers.length === 0 ? 2 * pad : x(layers.length - 1) + width + pad,
    height: bottom - top + 2 * pad,
    crossings,
  };
}

/**
 * fold groups the nodes of a graph (client.Graph) by the node that they are a part
 * of, at any depth.
 *
 * @param {{name: string, of?: string, needs?: string[], level: number}[]} nodes
 * @returns {{node: object, parts: object[], needs: string[]}[]} those that are part of
 *   no other, in their order; needs name others of them
 */
export function fold(nodes) {
  const byName = new Map(nodes.map((n) => [n.name, n]));
  const root = (n) => {
    const seen = new Set();
    while (n.of && byName.has(n.of) && !seen.has(n.name)) {
      seen.add(n.name);
      n = byName.get(n.of);
    }
    return n;
  };
  const groups = new Map();
  for (const n of nodes) if (root(n) === n) groups.set(n.name, {node: n, parts: [], needs: new Set()});
  for (const n of nodes) {
    const top = root(n);
    const group = groups.get(top.name);
    if (!group) continue;
    if (top !== n) group.parts.push(n);
    for (const need of n.needs || []) {
      if (!byName.has(need)) continue;
      const of = root(byName.get(need)).name;
      if (of !== top.name) group.needs.add(of);
    }
  }
  return [...groups.values()].map((g) => ({...g, needs: [...g.needs]}));
}
