// Sums over units with their margins, as topdown.region has them: the errors of least squares on the tree, from what
// page_errors.py says of the noise. Names are those of the modules that this follows: projection/sum_errors,
// uncertainty/laws/answer_errors, main_parts, shared_laws, error_law, uncertainty/interval, analysis/sum_intervals.
const makeSums = (E, tree) => {
  const rows = E.rows.map(sparse => {
    const row = new Array(E.width).fill(0);
    for (let k = 0; k < sparse.length; k += 2) row[sparse[k]] = sparse[k + 1];
    return row;
  });
  const forms = E.forms.map(one => ({own: rows[one.own], total: rows[one.total], both: rows[one.both],
    measured: one.measured.map(({number, own, total}) => ({number, own: own.map(k => rows[k]), total: total.map(k => rows[k])}))}));
  const sum = values => values.reduce((a, b) => a + b, 0);
  const at = (table, k) => Array.isArray(table) ? table[k] : table;
  const rowOf = (alike, k) => alike.rows[at(alike.of, k)];
  const place = node => node - tree.begins[tree.level[node]];

  // -- covariances of sums (sum_errors) ---------------------------------------------------------------------------
  // What a sum touches, by level: its units, with their amounts, and all that is above them.
  const touched = amounts => {
    const levels = Array.from({length: E.levels}, () => new Map());
    for (const [node, amount] of amounts) levels[tree.level[node]].set(node, {node, amount, children: []});
    for (let level = E.levels - 1; level > 0; level--)
      for (const one of levels[level].values()) {
        const above = tree.parent[one.node];
        if (!levels[level - 1].has(above)) levels[level - 1].set(above, {node: above, amount: 0, children: []});
        one.parent = levels[level - 1].get(above);
        one.parent.children.push(one);
      }
    return levels.map(level => [...level.values()]);
  };
  const untouched = one => at(E.children[tree.level[one.node]], place(one.node)) - one.children.length;
  // Small matrices, row by row. x' y, x y.
  const turned = (x, y, m) => Array.from({length: m * m}, (_, k) => { let s = 0; for (let l = 0; l < m; l++) s += x[l * m + (k / m | 0)] * y[l * m + k % m]; return s; });
  const times = (x, y, m) => Array.from({length: m * m}, (_, k) => { let s = 0; for (let l = 0; l < m; l++) s += x[(k / m | 0) * m + l] * y[l * m + k % m]; return s; });
  const add = (into, x, factor = 1) => { for (let k = 0; k < into.length; k++) into[k] += factor * x[k]; return into; };
  const zeros = n => new Array(n).fill(0);
  const transposed = (x, m) => x.map((_, k) => x[(k % m) * m + (k / m | 0)]);

  // Of one block: the sum's covariance, where it is open-ended, and at every unit touched its covariance with that.
  const inBlock = (entries, block) => {
    const m = block.size, s = m * m;
    for (let level = entries.length - 1; level >= 0; level--)
      for (const one of entries[level]) {
        one.row = rowOf(block.levels[level], place(one.node));
        one.m = zeros(s);
        for (const child of one.children) add(one.m, turned(child.row.slice(2 * s, 3 * s), child.b, m));
        one.b = one.m.map((v, k) => v + (k % (m + 1) === 0 ? one.amount : 0));
      }
    const total = [zeros(s), zeros(s)];
    const put = (b, spreads) => spreads.forEach((spread, k) => {
      if (spread.some(v => v)) add(total[k], turned(b, times(spread, b, m), m));
    });
    const spreads = row => [row.slice(0, s), row.slice(s, 2 * s)];
    entries.forEach((level, index) => level.forEach(one => {
      const own = spreads(one.row), gap = one.b.slice();
      if (index) add(gap, one.parent.m, -1);
      put(gap, own);
      one.joint = times(own[0], gap, m);
      if (index) add(one.joint, times(one.row.slice(2 * s, 3 * s), one.parent.joint, m));
      if (index + 1 < E.levels && untouched(one) > 0) {
        const rest = spreads(rowOf(block.families[index], place(one.node)));
        one.children.forEach(child => spreads(child.row).forEach((spread, k) => add(rest[k], spread, -1)));
        put(one.m, rest);
      }
    }));
    return total;
  };

  // Where noise was measured on a spine, units are sums of its nodes.
  const overNodes = amounts => {
    if (!tree.sums) return amounts;
    const found = new Map();
    for (const [unit, amount] of amounts) for (const node of tree.sums[unit]) found.set(node, (found.get(node) ?? 0) + amount);
    return found;
  };

  // The covariances of a sum in all blocks, with itself and with what it touches; of one answer its fourth cumulant.
  const spreadOf = amounts => {
    const entries = touched(overNodes(amounts)), finite = [], diffuse = [];
    entries.flat().forEach(one => { one.joints = []; });
    let cumulant = null;
    for (const block of E.blocks) {
      const [mine, open] = inBlock(entries, block), m = block.size;
      finite.push(...mine); diffuse.push(...open);
      entries.flat().forEach(one => { one.joints.push(...transposed(one.joint, m)); });
      if (E.exact) cumulant = cumulantOf(entries, block);
    }
    return {entries, finite, diffuse, cumulant};
  };
  const cumulantOf = (entries, block) => {
    let found = 0;
    entries.forEach((level, index) => level.forEach(one => {
      const own = one.row[3], kind = at(E.drawn[index][0] ?? -1, place(one.node));
      one.e = index ? one.b[0] + one.parent.outer : one.b[0];
      found += (own * one.e) ** 4 * (kind < 0 ? 0 : E.laws[kind].cumulant);
      one.outer = (1 - own) * one.e - one.m[0];
      if (index + 1 < E.levels && untouched(one) > 0) {
        const rest = rowOf(block.families[index], place(one.node))[2] - sum(one.children.map(child => child.row[4]));
        found += one.outer ** 4 * Math.max(rest, 0);
      }
    }));
    return found;
  };

  // -- which noise an error is made of (answer_errors) ---------------------------------------------------------------
  const dot = (a, b) => { let s = 0; for (let k = 0; k < a.length; k++) s += a[k] * b[k]; return s; };
  // measured: by query how many of its answers covary with what is asked by which form.
  const partsOf = (spread, measured) => {
    const found = [];
    const source = (joint, counted, query, drawn, kind) => {
      if (drawn <= 0 || kind < 0) return;
      const {number, form} = measured[query];
      number.forEach((many, k) => found.push(
        {kind, number: drawn * many, coefficient: dot(joint, form[k]) / (E.laws[kind].variance * counted)}));
    };
    spread.entries.forEach((level, index) => level.forEach(one => {
      const own = place(one.node);
      for (const [query, kinds] of Object.entries(E.drawn[index])) source(one.joints, 1, query, 1, at(kinds, own));
      if (index + 1 === E.levels || untouched(one) <= 0) return;
      const rest = one.joints.slice();
      one.children.forEach(child => add(rest, child.joints, -1));
      for (let lower = index + 1; lower < E.levels; lower++) {
        const mine = E.below[index][lower - index];
        const of = (table, node, level, pick) => at(pick(table[level][lower - level]), node);
        const left = pick => of(E.below, own, index, pick) - sum(one.children.map(child => of(E.below, place(child.node), index + 1, pick)));
        const counted = left(below => below.all);
        for (const query of Object.keys(mine.of))
          source(rest, counted, query, left(below => below.of[query]), E.most[lower][query]);
      }
    }));
    return found;
  };

  // -- the shape of the law (main_parts, shared_laws) ----------------------------------------------------------------
  const LEAST_STEP = 0.004, MOST_PARTS = 64;
  const varianceOf = one => one.number * one.coefficient ** 2 * E.laws[one.kind].variance;
  const cumulantOfPart = one => one.number * one.coefficient ** 4 * E.laws[one.kind].cumulant;
  const NORMAL = {terms: [], excess: 0};
  const shapeOf = (parts, variance, known) => {
    if (!(variance > 0) || !Number.isFinite(variance)) return NORMAL;
    const cumulant = known ?? sum(parts.map(cumulantOfPart)), merged = new Map();
    for (const one of parts) {
      if (!(varianceOf(one) > 1e-6 * variance)) continue;
      const c = Math.abs(one.coefficient), key = one.kind + " " + Math.round(Math.log(c) / 1e-6);
      if (merged.has(key)) merged.get(key).number += one.number;
      else merged.set(key, {kind: one.kind, number: one.number, coefficient: c});
    }
    const sd = Math.sqrt(variance);
    const main = [...merged.values()].map(one => ({...one, law: E.laws[one.kind], part: varianceOf(one) / variance,
      fourth: cumulantOfPart(one) / variance ** 2, pitch: one.coefficient * E.laws[one.kind].pitch / sd}))
      .sort((a, b) => b.part - a.part);
    const excess = cumulant / variance ** 2, step = steps(main, MOST_PARTS);
    const normal = excess < 0.02 && Math.max(0, ...step) < LEAST_STEP;
    const needed = normal ? 0 : Math.min(Math.max(neededOf(main, step, excess), 1), MOST_PARTS);
    return rounded(main.slice(0, needed), variance, normal ? 0 : cumulant);
  };
  const steps = (terms, most) => {
    const lattice = terms.filter(one => one.pitch > 0), smooth = Math.max(1 - sum(lattice.map(one => one.part)), 0);
    return terms.map((own, k) => {
      if (k >= most || own.pitch < LEAST_STEP) return 0;
      let lost = 0;
      for (const one of lattice) {
        const ratio = one.pitch / own.pitch, draw = one.part / (one.number * one.pitch ** 2);
        const gone = draw * (ratio - Math.round(ratio)) ** 2;
        lost += one.number * (one.law.wide ? 2 * Math.PI ** 2 * gone : Math.log1p(8 * gone));
      }
      return own.pitch * Math.exp(-lost - 2 * Math.PI ** 2 * smooth / own.pitch ** 2);
    });
  };
  const neededOf = (main, step, excess) => {
    let explained = 0, fourth = 0;
    for (let k = 0; k < main.length; k++) {
      const rest = Math.max(1 - explained, 0), left = Math.max(excess - fourth, 0);
      if (left <= 0.5 * rest ** 2 + 1e-12 && Math.max(0, ...step.slice(k)) < LEAST_STEP) return k;
      explained += main[k].part; fourth += main[k].fourth;
    }
    return main.length;
  };
  // Parts and excess as the shared laws have them.
  const rounded = (main, variance, cumulant) => {
    let taken = 0, left = 1;
    const kept = main.filter((one, k) => {
      const least = one.pitch >= 0.01 ? 1e-6 : 0.02;
      return k === 0 || (one.part >= least && main[0].part < 1 - 1e-8);
    });
    kept.forEach(one => { taken += cumulantOfPart(one); });
    const rest = Math.max(1 - sum(kept.map(one => Math.min(one.part, 1))), 0);
    const kurtosis = Math.max(cumulant - taken, 0) / variance ** 2;
    const excess = Math.expm1(Math.round(Math.log1p(Math.min(rest > 1e-8 ? kurtosis / rest ** 2 : 0, 1e4)) / 1e-3) * 1e-3);
    const terms = [];
    for (const one of kept) {
      const p = Math.min(Math.max(one.part, 0), 1);
      const logit = Math.round(Math.min(Math.max(Math.log(p) - Math.log1p(-p), -15), 18) / 1e-4) * 1e-4;
      if (logit <= -15) continue;
      const part = logit >= 18 ? left : Math.min(1 / (1 + Math.exp(-logit)), left);
      if (part > 0) { terms.push({law: one.law, number: one.number, part}); left -= part; }
    }
    return {terms, excess};
  };

  // -- its tail (error_law) ------------------------------------------------------------------------------------------
  const STEP = 1 / 128, FINE = 0.01, NEGLIGIBLE = 1e-13;
  // Numerical Recipes' Chebyshev fit of erfc, exp(x^2) of it: relative error below 1.2e-7.
  const scaledErfc = x => {
    const t = 1 / (1 + 0.5 * x);
    return t * Math.exp(-1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (0.27886807
      + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
  };
  const above = x => x >= 0 ? 0.5 * scaledErfc(x / Math.SQRT2) * Math.exp(-x * x / 2) : 1 - above(-x);
  // exp(a) P(Z > x), where a may be large.
  const times_above = (a, x) => x >= 0 ? 0.5 * scaledErfc(x / Math.SQRT2) * Math.exp(a - x * x / 2) : Math.exp(a) * (1 - above(-x));
  const restOf = (variance, excess) => {
    if (excess >= 3) { const part = 6 / (excess + 3); return {normal: 0, laplace: Math.sqrt(variance / (2 * part)), part}; }
    const laplace = (Math.max(excess, 0) / 12) ** 0.25 * Math.sqrt(variance);
    return {normal: Math.sqrt(Math.max(variance - 2 * laplace ** 2, 0)), laplace, part: 1};
  };
  const tailOfRest = ({normal: s, laplace: b, part}) => x => {
    if (s === 0 && b === 0) return 0;
    if (s < 1e-4 * b) return part * 0.5 * Math.exp(-x / b);
    if (b < 1e-4 * s) return part * above(x / s);
    const bend = s * s / (2 * b * b);
    return part * Math.max(above(x / s) + 0.5 * (times_above(bend - x / b, s / b - x / s) - times_above(bend + x / b, x / s + s / b)), 0);
  };
  const cells = (tail, step, size) => {
    const half = size / 2, beyond = Float64Array.from({length: half}, (_, k) => tail((k + 0.5) * step));
    return wrapped(Float64Array.from({length: half}, (_, k) => k ? beyond[k - 1] - beyond[k] : 1 - 2 * beyond[0]), size);
  };
  const wrapped = (upper, size) => {
    const found = new Float64Array(size);
    for (let k = 0; k < size / 2; k++) { found[k] = upper[k]; if (k) found[size - k] = upper[k]; }
    return found;
  };
  // P(K = k) and P(X > x) of the laws of noise; K counts steps of the lattice.
  const massOf = law => {
    if (law.kind === "geometric") { const a = Math.exp(-Math.min(law.pitch / law.scale, 1000)); return k => (1 - a) / (1 + a) * a ** k; }
    const s = Math.max(law.sigma2 / law.pitch ** 2, 1e-4);
    let norm = 1;
    for (let k = 1; k < 40 * Math.sqrt(s) + 2; k++) norm += 2 * Math.exp(-k * k / (2 * s));
    return k => Math.exp(-k * k / (2 * s)) / norm;
  };
  const beyondOf = law => {
    if (law.kind === "laplace") return x => 0.5 * Math.exp(-x / law.scale);
    if (law.kind === "gaussian") return x => above(x / Math.sqrt(law.variance));
    if (law.kind === "geometric") { const a = Math.exp(-Math.min(law.pitch / law.scale, 1000)); return x => a ** (Math.floor(x / law.pitch) + 1) / (1 + a); }
    const mass = massOf(law), most = Math.ceil(40 * Math.sqrt(law.sigma2) / law.pitch) + 2, tail = new Float64Array(most + 1);
    for (let k = most - 1; k >= 0; k--) tail[k] = tail[k + 1] + mass(k + 1);
    return x => tail[Math.min(Math.floor(x / law.pitch), most)];
  };
  const massesOf = (term, step, size) => {
    if (term.pitch < Math.max(FINE, step)) { const beyond = beyondOf(term.law); return cells(x => beyond(x / term.coefficient), step, size); }
    const mass = massOf(term.law), stride = term.pitch / step, upper = new Float64Array(size / 2 + 1);
    for (let k = 0; k <= Math.floor((size / 2 - 2) / stride); k++) {
      const where = k * stride, before = Math.floor(where + 1e-6), after = Math.max(where - before, 0), m = mass(k);
      upper[before] += m * (1 - after); upper[before + 1] += m * after;
    }
    return wrapped(upper, size);
  };
  // The discrete Fourier transform in place (Cooley and Tukey, radix 2); all arrays here are symmetric, so that it is real.
  const transform = real => {
    const n = real.length, re = Float64Array.from(real), im = new Float64Array(n);
    for (let i = 1, j = 0; i < n; i++) {
      let bit = n >> 1;
      for (; j & bit; bit >>= 1) j ^= bit;
      j ^= bit;
      if (i < j) [re[i], re[j]] = [re[j], re[i]];
    }
    const cos = Float64Array.from({length: n / 2}, (_, k) => Math.cos(2 * Math.PI * k / n));
    const sin = Float64Array.from({length: n / 2}, (_, k) => -Math.sin(2 * Math.PI * k / n));
    for (let size = 2; size <= n; size *= 2)
      for (let from = 0; from < n; from += size)
        for (let k = 0; k < size / 2; k++) {
          const a = from + k, b = a + size / 2, w = k * n / size;
          const x = re[b] * cos[w] - im[b] * sin[w], y = re[b] * sin[w] + im[b] * cos[w];
          re[b] = re[a] - x; im[b] = im[a] - y; re[a] += x; im[a] += y;
        }
    return re;
  };
  const gridOf = (terms, rest, reach) => {
    const std = Math.sqrt(rest.part * (rest.normal ** 2 + 2 * rest.laplace ** 2));
    const pitches = terms.map(one => one.pitch).filter(pitch => pitch >= FINE && pitch <= reach);
    if (!pitches.length) return {step: STEP, std};
    const wanted = std > 1e-6 ? Math.min(STEP, Math.max(1 / 512, std / 4)) : STEP;
    const fewest = Math.max(1, Math.ceil(pitches[0] / Math.max(wanted, 2 * reach / (1 << 15))));
    let best = fewest, least = Infinity;
    for (let n = fewest; n <= (pitches.length > 1 ? 2 : 1) * fewest; n++) {
      const misfit = Math.round(1e9 * sum(pitches.slice(1).map(pitch => { const s = n * pitch / pitches[0]; return Math.abs(s - Math.round(s)); })));
      if (misfit < least) { least = misfit; best = n; }
    }
    return {step: pitches[0] / best, std};
  };
  const tailOf = shape => {
    const terms = shape.terms.map(one => {
      const coefficient = Math.sqrt(one.part / (one.number * one.law.variance)), std = Math.sqrt(one.law.variance);
      return {...one, coefficient, pitch: one.law.pitch * coefficient, reach: coefficient * (one.law.reach + 9 * Math.sqrt(one.number - 1) * std)};
    });
    const rest = restOf(Math.max(1 - sum(terms.map(one => one.part)), 0), shape.excess);
    const reach = 8 * rest.normal + 30 * rest.laplace + sum(terms.map(one => one.reach));
    const {step, std} = gridOf(terms, rest, reach), size = 2 ** Math.max(8, Math.ceil(Math.log2(2 * reach / step)));
    const product = transform(cells(tailOfRest(rest), step, size));
    for (const term of terms) transform(massesOf(term, step, size)).forEach((v, k) => { product[k] *= v ** term.number; });
    const masses = transform(product), half = size / 2;
    const beyond = new Float64Array(half + 1);
    for (let k = half - 1; k >= 1; k--) beyond[k] = beyond[k + 1] + Math.max(masses[k] / size, 0);
    let kept = 0;
    for (let k = 1; k < half; k++) kept += beyond[k] > NEGLIGIBLE;
    kept = Math.max(2, kept);
    const x = [0], logTail = [Math.log(0.5)];
    for (let k = 0; k < kept; k++) { x.push((k + 0.5) * step); logTail.push(Math.log(Math.max(beyond[k + 1], NEGLIGIBLE))); }
    const hasSteps = Math.max(0, ...steps(terms, terms.length)) >= FINE;
    return {x, logTail, hasSteps, sharp: hasSteps && std < 2 * step, slack: hasSteps ? 1e-3 + (rest.part < 1 ? std : 0) : 0};
  };
  // The least x with P(X > x) <= probability, below 1/2.
  const quantileOf = (tail, probability) => {
    const wanted = Math.log(probability), {x, logTail} = tail;
    let low = 0, high = logTail.length;
    while (low < high) { const middle = (low + high) >> 1; if (logTail[middle] <= wanted) high = middle; else low = middle + 1; }
    const after = Math.min(Math.max(low, 1), x.length - 1);
    if (wanted < logTail[logTail.length - 1]) return Infinity;
    const part = tail.sharp ? 1 : (logTail[after - 1] - wanted) / Math.max(logTail[after - 1] - logTail[after], 1e-300);
    return x[after - 1] + Math.min(Math.max(part, 0), 1) * (x[after] - x[after - 1]) + tail.slack;
  };

  // -- intervals (uncertainty/interval, analysis/sum_intervals) --------------------------------------------------------
  const widest = values => values.map((v, k) => Math.max(v, values[k - 1] ?? v, values[k + 1] ?? v));
  const ruleOf = (shape, alpha) => {
    const tail = tailOf(shape), theta = E.share.map((_, k) => k * E.theta);
    let below = E.share.map(s => quantileOf(tail, s * alpha)), over = E.share.map(s => quantileOf(tail, (1 - s) * alpha));
    if (tail.hasSteps) { below = widest(below); over = widest(over); }
    const enters = theta.map((t, k) => Number.isFinite(below[k]) ? t - below[k] : -1e12), leaves = theta.map((t, k) => t + over[k]);
    for (let k = theta.length - 2; k >= 0; k--) enters[k] = Math.min(enters[k], enters[k + 1]);
    for (let k = 1; k < theta.length; k++) leaves[k] = Math.max(leaves[k], leaves[k - 1]);
    const symmetric = quantileOf(tail, alpha / 2), last = theta.length - 1;
    const read = (x, ends) => {
      if (x <= ends[0]) return theta[0];
      let k = 1;
      while (k < last && ends[k] + k * 1e-9 < x) k++;
      const a = ends[k - 1] + (k - 1) * 1e-9, b = ends[k] + k * 1e-9;
      return theta[k - 1] + (x - a) / (b - a) * (theta[k] - theta[k - 1]);
    };
    return {symmetric, lower: x => x > leaves[last] + last * 1e-9 ? x - symmetric : x < leaves[0] ? 0 : read(x, leaves),
      upper: x => x > enters[last] + last * 1e-9 ? x + symmetric : read(x, enters)};
  };

  const form = answer => forms[answer.form];
  const own = answer => form(answer).measured.map(({number, own}) => ({number, form: own}));
  const variance = (spread, weights, copies, largest) => {
    if (!copies) return 0;
    if (dot(weights, spread.diffuse) > 1e-9 * largest ** 2) return Infinity;
    const found = Math.max(dot(weights, spread.finite), 0);
    return copies * (found < E.negligible * largest ** 2 ? 0 : found);
  };
  const largestOf = amounts => Math.max(0, ...[...amounts.values()].map(Math.abs)) || 1;
  const drawnTimes = (parts, copies) => parts.map(one => ({...one, number: one.number * copies}));
  const valueOf = (values, amounts) => { let s = 0; for (const [node, amount] of amounts) s += amount * values(node); return s; };
  const whole = amounts => [...amounts.values()].every(Number.isInteger);
  const combined = (one, other, factor) => {
    const found = new Map(one);
    for (const [node, amount] of other) found.set(node, (found.get(node) ?? 0) + factor * amount);
    return found;
  };

  // The sum of an answer over units, with a margin of error: amounts, Map of node -> amount; values, node -> estimate.
  const region = (amounts, answer, values, confidence, signed) => {
    const alpha = 1 - confidence, spread = spreadOf(amounts), largest = largestOf(amounts);
    const estimate = valueOf(values, amounts) + 0, v = variance(spread, form(answer).own, answer.copies, largest);
    if (!Number.isFinite(v)) return {estimate, sd: Infinity, lower: signed ? -Infinity : 0, upper: Infinity, note: "not determined by what was measured"};
    const sd = Math.sqrt(v);
    if (sd <= 1e-9 * Math.max(largest, Math.abs(estimate))) {
      const exact = whole(amounts) ? Math.round(estimate) : estimate;
      return {estimate: exact, sd: 0, lower: exact, upper: exact, note: "exact"};
    }
    const cumulant = spread.cumulant === null ? null : spread.cumulant * answer.copies;
    const rule = ruleOf(shapeOf(drawnTimes(partsOf(spread, own(answer)), answer.copies), v, cumulant), alpha);
    const both = signed || [...amounts.values()].some(amount => amount < 0);
    let lower = both ? estimate - rule.symmetric * sd : rule.lower(estimate / sd) * sd;
    let upper = both ? estimate + rule.symmetric * sd : rule.upper(estimate / sd) * sd;
    if (whole(amounts)) {
      const slack = 1e-9 * Math.max(1, Math.abs(estimate)), ends = [Math.ceil(lower - slack), Math.floor(upper + slack)];
      [lower, upper] = ends[0] <= ends[1] ? ends : [Math.round(estimate), Math.round(estimate)];
    }
    return {estimate, sd, lower: lower + 0, upper: upper + 0, note: ""};
  };

  // The share of one sum in another of the same answer, or (total, with its values) of the total at the same units.
  const share = (part, answer, values, whole, total, confidence) => {
    const alpha = 1 - confidence, same = !total, largest = largestOf(part), other = same ? whole : part;
    const mine = spreadOf(part), theirs = same ? spreadOf(other) : mine, f = form(answer);
    const a = valueOf(values, part), b = valueOf(same ? values : total.values, other);
    const ofA = variance(mine, f.own, answer.copies, largest);
    const ofB = same ? variance(theirs, f.own, answer.copies, largestOf(other)) : variance(mine, f.total, total.copies, largest);
    let both;
    if (same) {
      const [more, less] = [1, -1].map(sign => { const c = combined(part, other, sign); return variance(spreadOf(c), f.own, answer.copies, largestOf(c)); });
      both = 0.25 * (more - less);
    } else both = answer.copies * dot(f.both, mine.finite);
    const shapeAt = s => {
      const v = ofA - 2 * s * both + s * s * ofB;
      if (!same && f.measured.some(one => one.total.some((row, k) => row !== one.own[k]))) {
        const mixed = f.measured.map(({number, own, total}) => ({number, form: own.map((row, k) => row.map((x, l) => x - s * total[k][l]))}));
        return shapeOf(partsOf(mine, mixed), v, mine.cumulant === null ? null : mine.cumulant);
      }
      const scaled = factor => new Map([...part].map(([node, amount]) => [node, factor * amount]));
      const first = spreadOf(same ? combined(part, other, -s) : scaled(1 - s));
      let parts = drawnTimes(partsOf(first, own(answer)), answer.copies), cumulant = first.cumulant === null ? null : first.cumulant * answer.copies;
      if (!same) {
        const beside = spreadOf(scaled(s)), more = total.copies - answer.copies;
        parts = parts.concat(drawnTimes(partsOf(beside, own(answer)), more));
        cumulant = cumulant === null ? null : cumulant + beside.cumulant * more;
      }
      return shapeOf(parts, v, cumulant);
    };
    const found = fieller(a, b, ofA, ofB, both, s => quantileOf(tailOf(shapeAt(s)), alpha / 2));
    const itself = same && [...combined(part, other, -1).values()].every(amount => amount === 0);
    return itself ? {...found, note: [found.note, "the part is the whole: its share is 1 whatever the counts are"].filter(Boolean).join("; ")} : found;
  };
  const fieller = (a, b, ofA, ofB, both, reachAt) => {
    const undetermined = "undetermined: every share from 0 to 1 is within the margin", estimate = b > 0 ? a / b + 0 : NaN;
    if (a === 0 && ofA === 0 && (b !== 0 || ofB !== 0)) return {estimate: 0, sd: 0, lower: 0, upper: 0, note: "exact"};
    if (![ofA, ofB, both].every(Number.isFinite)) return {estimate, sd: Infinity, lower: 0, upper: 1, note: undetermined};
    const sdOfShare = b > 0 ? Math.sqrt(Math.max(ofA - 2 * estimate * both + estimate ** 2 * ofB, 0)) / b : Infinity;
    let shares = Array.from({length: 2001}, (_, k) => k / 2000);
    if (Number.isFinite(sdOfShare)) {
      const near = Array.from({length: 2001}, (_, k) => estimate + sdOfShare * (-12 + 24 * k / 2000)).filter(s => s >= 0 && s <= 1);
      shares = [...new Set([...shares, ...near])].sort((x, y) => x - y);
    }
    const reaches = Array.from({length: 9}, (_, k) => reachAt(k / 8));
    const reach = s => { const k = Math.min(Math.floor(s * 8), 7); return reaches[k] + (s * 8 - k) * (reaches[k + 1] - reaches[k]); };
    const beyond = shares.map(s => Math.abs(a - s * b) - reach(s) * Math.sqrt(Math.max(ofA - 2 * s * both + s * s * ofB, 0)));
    const kept = shares.flatMap((_, k) => beyond[k] <= 1e-9 ? [k] : []);
    if (kept.length === shares.length) return {estimate, sd: sdOfShare, lower: 0, upper: 1, note: undetermined};
    if (!kept.length) {
      const nearest = b > 0 ? Math.min(Math.max(estimate, 0), 1) : +(a > 0);
      return {estimate, sd: sdOfShare, lower: nearest, upper: nearest, note: "no share from 0 to 1 is within the margin"};
    }
    const crossing = (out, within) => {
      if (out === within) return shares[within];
      const part = Math.min(Math.max(beyond[within] / (beyond[within] - beyond[out]), 0), 1);
      return shares[within] + part * (shares[out] - shares[within]);
    };
    const first = kept[0], last = kept[kept.length - 1];
    return {estimate, sd: sdOfShare, lower: crossing(Math.max(first - 1, 0), first), upper: crossing(Math.min(last + 1, shares.length - 1), last), note: ""};
  };
  return {region, share};
};
