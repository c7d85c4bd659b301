/* The host kernels on images for the real type R, part of host.inc.h. A convolution is oneDNN's where it has one (f32,
 * direct.c); else a product of its filters with the windows of one image laid out as columns, some rows of places at a
 * time, so that the columns stay in the cache. */

#define PD_COLUMNS 65536 /* elements of the columns that are made at a time */

/* Rows of places that are taken together, for windows over `channels` of the image. */
static int64_t F(host_place_rows)(const pd_image_window *v, int64_t channels) {
  return host_max(1, host_min(v->oh, PD_COLUMNS / host_max(1, channels * v->kh * v->kw * v->ow)));
}

/* The places along the width whose window has column `kx` inside of the image: first .. end - 1. */
static int64_t F(host_inside)(const pd_image_window *v, int64_t kx, int64_t *end) {
  const int64_t first = kx < v->pad ? host_pieces(v->pad - kx, v->stride) : 0;
  const int64_t last = v->w - 1 + v->pad - kx; /* in steps of 1 */
  *end = last < 0 ? 0 : host_min(v->ow, last / v->stride + 1);
  return host_min(first, *end);
}

/* Columns of `rows` rows of places from `row` on: for every position of the window over `channels` channels of x (one
 * image, from the first of them) what lies there at each place. */
static void F(host_columns)(const pd_image_window *v, int64_t channels, int64_t row, int64_t rows, const R *x, R *to) {
  for (int64_t k = 0; k < channels * v->kh * v->kw; k++) {
    const int64_t c = k / (v->kh * v->kw), ky = k / v->kw % v->kh, kx = k % v->kw;
    int64_t end;
    const int64_t first = F(host_inside)(v, kx, &end);
    for (int64_t r = 0; r < rows; r++, to += v->ow) {
      const int64_t iy = (row + r) * v->stride + ky - v->pad;
      if (iy < 0 || iy >= v->h) {
        memset(to, 0, (size_t)v->ow * sizeof *to);
        continue;
      }
      const R *from = x + (c * v->h + iy) * v->w + first * v->stride + kx - v->pad;
      for (int64_t i = 0; i < first; i++) to[i] = 0;
      if (v->stride == 1) {
        memcpy(to + first, from, (size_t)(end - first) * sizeof *to);
      } else {
        for (int64_t i = first; i < end; i++) to[i] = from[(i - first) * v->stride];
      }
      for (int64_t i = end; i < v->ow; i++) to[i] = 0;
    }
  }
}

/* The reverse: adds columns to the image. */
static void F(host_add_columns)(const pd_image_window *v, int64_t channels, int64_t row, int64_t rows, const R *from,
                                R *x) {
  for (int64_t k = 0; k < channels * v->kh * v->kw; k++) {
    const int64_t c = k / (v->kh * v->kw), ky = k / v->kw % v->kh, kx = k % v->kw;
    int64_t end;
    const int64_t first = F(host_inside)(v, kx, &end);
    for (int64_t r = 0; r < rows; r++, from += v->ow) {
      const int64_t iy = (row + r) * v->stride + ky - v->pad;
      if (iy < 0 || iy >= v->h) continue;
      R *to = x + (c * v->h + iy) * v->w + first * v->stride + kx - v->pad;
      if (v->stride == 1) {
#pragma omp simd
        for (int64_t i = first; i < end; i++) to[i - first] += from[i];
      } else {
        for (int64_t i = first; i < end; i++) to[(i - first) * v->stride] += from[i];
      }
    }
  }
}

/* Windows of one position, one beside the other: the image is its own columns. */
static bool F(host_points)(const pd_image_window *v) {
  return v->kh == 1 && v->kw == 1 && v->stride == 1 && v->pad == 0;
}

static double F(host_window_work)(const pd_image_window *v) {
  return (double)v->n * (double)v->filters * (double)v->oh * (double)v->ow * (double)(v->channels * v->kh * v->kw);
}

static void F(host_conv2d)(const pd_image_window *v, const R *x, const R *f, R *y) {
  if (F(host_direct)(PD_DIRECT_FORWARD, v, x, f, y)) return;
  const int64_t k = v->channels * v->kh * v->kw, places = v->oh * v->ow;
  const int64_t rows = F(host_place_rows)(v, v->channels), strips = host_pieces(v->oh, rows), each = k * rows * v->ow;
  const int threads = F(host_window_work)(v) > PD_GRAIN ? omp_get_max_threads() : 1;
  R *scratch = host_scratch((size_t)(threads * each) * sizeof *scratch);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t unit = 0; unit < v->n * strips; unit++) {
    omp_set_num_threads(1);
    const int64_t n = unit / strips, row = unit % strips * rows, count = host_min(rows, v->oh - row);
    const R *image = x + n * v->channels * v->h * v->w, *columns = image + row * v->w;
    int64_t apart = v->h * v->w;
    if (!F(host_points)(v)) {
      R *own = scratch + omp_get_thread_num() * each;
      F(host_columns)(v, v->channels, row, count, image, own);
      columns = own;
      apart = count * v->ow;
    }
    F(host_part)
    (false, false, v->filters, count * v->ow, k, 1, f, k, columns, apart, 0, y + n * v->filters * places + row * v->ow,
     places);
  }
}

/* Channels are cut where there are few images; strips of one image overlap and follow each other. */
static void F(host_conv2d_input_grad)(const pd_image_window *v, const R *f, const R *dy, R *dx) {
  if (F(host_direct)(PD_DIRECT_INPUT_GRAD, v, f, dy, dx)) return;
  const int64_t window = v->kh * v->kw, k = v->channels * window, places = v->oh * v->ow, area = v->h * v->w;
  const int64_t groups = v->n >= 4 ? 1 : host_min(v->channels, 4), most = host_pieces(v->channels, groups);
  const int64_t rows = F(host_place_rows)(v, most), each = most * window * rows * v->ow;
  const int threads = F(host_window_work)(v) > PD_GRAIN ? omp_get_max_threads() : 1;
  R *scratch = host_scratch((size_t)(threads * each) * sizeof *scratch);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t unit = 0; unit < v->n * groups; unit++) {
    omp_set_num_threads(1);
    const int64_t n = unit / groups, first = unit % groups * most, channels = host_min(most, v->channels - first);
    if (channels <= 0) continue;
    R *image = dx + (n * v->channels + first) * area, *columns = scratch + omp_get_thread_num() * each;
    const R *from = dy + n * v->filters * places;
    if (F(host_points)(v)) {
      F(host_part)(true, false, channels, places, v->filters, 1, f + first, k, from, places, 0, image, places);
      continue;
    }
    memset(image, 0, (size_t)(channels * area) * sizeof *image);
    for (int64_t row = 0; row < v->oh; row += rows) {
      const int64_t count = host_min(rows, v->oh - row), width = count * v->ow;
      F(host_part)
      (true, false, channels * window, width, v->filters, 1, f + first * window, k, from + row * v->ow, places, 0,
       columns, width);
      F(host_add_columns)(v, channels, row, count, columns, image);
    }
  }
}

/* Small gradients: parts of the images have one of their own each, added in order. Large ones: cut by channels. */
static void F(host_conv2d_filter_grad)(const pd_image_window *v, const R *x, const R *dy, R *df) {
  if (F(host_direct)(PD_DIRECT_FILTER_GRAD, v, x, dy, df)) return;
  const int64_t window = v->kh * v->kw, k = v->channels * window, places = v->oh * v->ow, size = v->filters * k;
  const bool small = size <= 65536;
  const int64_t parts = small ? host_min(8, v->n) : 1;
  const int64_t groups = small ? 1 : host_max(1, host_min(host_min(8, v->channels), k / 64));
  const int64_t most = host_pieces(v->channels, groups), rows = F(host_place_rows)(v, most);
  const int64_t each = most * window * rows * v->ow;
  const int threads = F(host_window_work)(v) > PD_GRAIN ? omp_get_max_threads() : 1;
  R *scratch = host_scratch((size_t)(threads * each + (parts - 1) * size) * sizeof *scratch),
    *own = scratch + threads * each;
  if (v->n == 0) return;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t unit = 0; unit < parts * groups; unit++) {
    omp_set_num_threads(1);
    const int64_t part = unit / groups, first = unit % groups * most, channels = host_min(most, v->channels - first);
    if (channels <= 0) continue;
    R *to = part == 0 ? df : own + (part - 1) * size, *scratch_columns = scratch + omp_get_thread_num() * each;
    const int64_t begin = v->n * part / parts;
    for (int64_t n = begin; n < v->n * (part + 1) / parts; n++) {
      for (int64_t row = 0; row < v->oh; row += rows) {
        const int64_t count = host_min(rows, v->oh - row), width = count * v->ow;
        const R *image = x + (n * v->channels + first) * v->h * v->w, *columns = image + row * v->w;
        if (!F(host_points)(v)) {
          F(host_columns)(v, channels, row, count, image, scratch_columns);
          columns = scratch_columns;
        }
        const R beta = part > 0 && n == begin && row == 0 ? 0 : 1;
        F(host_part)
        (false, true, v->filters, channels * window, width, 1, dy + n * v->filters * places + row * v->ow, places,
         columns, F(host_points)(v) ? v->h * v->w : width, beta, to + first * window, k);
      }
    }
  }
  for (int64_t part = 1; part < parts; part++) F(host_add)(size, own + (part - 1) * size, df);
}

/* Places `first` .. `first + count - 1` of row `oy` of one image: the largest of each window, and where in the window
 * it is. Positions of the window one after another, for all places at once. */
static void F(host_largest_of)(const pd_image_window *v, const R *x, int64_t oy, int64_t first, int64_t count, R *best,
                               int32_t *where) {
  for (int64_t i = 0; i < count; i++) best[i] = 0, where[i] = -1;
  for (int64_t ky = 0; ky < v->kh; ky++) {
    const int64_t iy = oy * v->stride + ky - v->pad;
    if (iy < 0 || iy >= v->h) continue;
    for (int64_t kx = 0; kx < v->kw; kx++) {
      int64_t end, begin = F(host_inside)(v, kx, &end);
      begin = host_max(begin, first);
      end = host_min(end, first + count);
      const R *from = x + iy * v->w + begin * v->stride + kx - v->pad;
      const int32_t position = (int32_t)(ky * v->kw + kx);
      R *b = best + (begin - first);
      int32_t *at = where + (begin - first);
#pragma omp simd
      for (int64_t i = 0; i < end - begin; i++) {
        const R value = from[i * v->stride];
        const bool more = (value > b[i]) | (at[i] < 0) | ((value != value) & (b[i] == b[i]));
        b[i] = more ? value : b[i];
        at[i] = more ? position : at[i];
      }
    }
  }
}

#define PD_PLACES 256 /* that are looked at together */

static void F(host_maxpool)(const pd_image_window *v, const R *x, R *y) {
#pragma omp parallel for if (v->n * v->channels * v->h * v->w > PD_GRAIN) schedule(static)
  for (int64_t image = 0; image < v->n * v->channels; image++) {
    int32_t where[PD_PLACES];
    for (int64_t oy = 0; oy < v->oh; oy++) {
      for (int64_t first = 0; first < v->ow; first += PD_PLACES) {
        F(host_largest_of)
        (v, x + image * v->h * v->w, oy, first, host_min(PD_PLACES, v->ow - first),
         y + (image * v->oh + oy) * v->ow + first, where);
      }
    }
  }
}

static void F(host_maxpool_grad)(const pd_image_window *v, const R *x, const R *dy, R *dx) {
#pragma omp parallel for if (v->n * v->channels * v->h * v->w > PD_GRAIN) schedule(static)
  for (int64_t image = 0; image < v->n * v->channels; image++) {
    R *to = dx + image * v->h * v->w, best[PD_PLACES];
    int32_t where[PD_PLACES];
    memset(to, 0, (size_t)(v->h * v->w) * sizeof *to);
    for (int64_t oy = 0; oy < v->oh; oy++) {
      for (int64_t first = 0; first < v->ow; first += PD_PLACES) {
        const int64_t count = host_min(PD_PLACES, v->ow - first);
        F(host_largest_of)(v, x + image * v->h * v->w, oy, first, count, best, where);
        for (int64_t i = 0; i < count; i++) {
          const int64_t iy = oy * v->stride - v->pad + where[i] / v->kw;
          const int64_t ix = (first + i) * v->stride - v->pad + where[i] % v->kw;
          to[iy * v->w + ix] += dy[(image * v->oh + oy) * v->ow + first + i];
        }
      }
    }
  }
}

#undef PD_PLACES

static void F(host_avgpool)(const pd_image_window *v, const R *x, R *y) {
  const R share = (R)(1 / (double)(v->kh * v->kw));
#pragma omp parallel for if (v->n * v->channels * v->h * v->w > PD_GRAIN) schedule(static)
  for (int64_t image = 0; image < v->n * v->channels; image++) {
    for (int64_t i = 0; i < v->oh * v->ow; i++) {
      const R *from = x + (image * v->h + i / v->ow * v->stride) * v->w + i % v->ow * v->stride;
      R sum = 0;
      for (int64_t ky = 0; ky < v->kh; ky++) {
        for (int64_t kx = 0; kx < v->kw; kx++) sum += from[ky * v->w + kx];
      }
      y[image * v->oh * v->ow + i] = sum * share;
    }
  }
}

static void F(host_avgpool_grad)(const pd_image_window *v, const R *dy, R *dx) {
  const R share = (R)(1 / (double)(v->kh * v->kw));
#pragma omp parallel for if (v->n * v->channels * v->h * v->w > PD_GRAIN) schedule(static)
  for (int64_t image = 0; image < v->n * v->channels; image++) {
    memset(dx + image * v->h * v->w, 0, (size_t)(v->h * v->w) * sizeof *dx);
    for (int64_t i = 0; i < v->oh * v->ow; i++) {
      R *to = dx + (image * v->h + i / v->ow * v->stride) * v->w + i % v->ow * v->stride;
      const R value = dy[image * v->oh * v->ow + i] * share;
      for (int64_t ky = 0; ky < v->kh; ky++) {
        for (int64_t kx = 0; kx < v->kw; kx++) to[ky * v->w + kx] += value;
      }
    }
  }
}

/* ---- batch normalisation: a channel by one thread, its samples in order ---- */

static void F(host_normalise)(int64_t n, int64_t channels, int64_t inner, int64_t c, double mean, R inverse, const R *x,
                              R *y) {
  const R centre = (R)mean, rest = (R)(mean - (double)centre); /* as in layernorm */
  for (int64_t i = 0; i < n; i++) {
    const R *from = x + (i * channels + c) * inner;
    R *to = y + (i * channels + c) * inner;
#pragma omp simd
    for (int64_t j = 0; j < inner; j++) to[j] = (from[j] - centre - rest) * inverse;
  }
}

/* Adds sum of x - centre, and of its square. */
static void F(host_about)(int64_t n, const R *x, R centre, double *sum, double *squares) {
  for (int64_t i = 0; i < n; i += 1024) {
    const int64_t end = host_min(n, i + 1024);
    R first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
    for (int64_t j = i; j < end; j++) {
      const R apart = x[j] - centre;
      first += apart;
      second += apart * apart;
    }
    *sum += (double)first;
    *squares += (double)second;
  }
}

/* The first sum need not be exact: what the mean of x - centre is besides 0 corrects it. */
static void F(host_batchnorm)(int64_t n, int64_t channels, int64_t inner, R eps, const R *x, R *y, R *mean,
                              R *variance) {
  const double count = (double)host_max(n * inner, 1);
#pragma omp parallel for if (n * channels * inner > PD_GRAIN) schedule(static)
  for (int64_t c = 0; c < channels; c++) {
    double sum = 0, apart = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += F(host_sum)(inner, x + (i * channels + c) * inner);
    const R centre = (R)(sum / count);
    for (int64_t i = 0; i < n; i++) F(host_about)(inner, x + (i * channels + c) * inner, centre, &apart, &squares);
    const double rest = apart / count, square = squares / count - rest * rest;
    const double measured = square > 0 ? square : square * 0; /* a NaN stays */
    F(host_normalise)(n, channels, inner, c, (double)centre + rest, (R)(1 / sqrt(measured + (double)eps)), x, y);
    mean[c] = (R)((double)centre + rest);
    variance[c] = (R)measured;
  }
}

static void F(host_batchnorm_given)(int64_t n, int64_t channels, int64_t inner, R eps, const R *x, const R *mean,
                                    const R *variance, R *y) {
#pragma omp parallel for if (n * channels * inner > PD_GRAIN) schedule(static)
  for (int64_t c = 0; c < channels; c++) {
    F(host_normalise)(n, channels, inner, c, (double)mean[c], (R)(1 / sqrt((double)variance[c] + (double)eps)), x, y);
  }
}

static void F(host_batchnorm_grad)(int64_t n, int64_t channels, int64_t inner, R eps, const R *y, const R *variance,
                                   const R *dy, R *dx) {
  const double count = (double)host_max(n * inner, 1);
#pragma omp parallel for if (n * channels * inner > PD_GRAIN) schedule(static)
  for (int64_t c = 0; c < channels; c++) {
    double sum = 0, product = 0;
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = (i * channels + c) * inner;
      sum += F(host_sum)(inner, dy + at);
      product += F(host_dot)(inner, dy + at, y + at);
    }
    const R mean = (R)(sum / count), dot = (R)(product / count);
    const R factor = (R)(1 / sqrt((double)variance[c] + (double)eps));
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = (i * channels + c) * inner;
#pragma omp simd
      for (int64_t j = 0; j < inner; j++) dx[at + j] = factor * (dy[at + j] - mean - y[at + j] * dot);
    }
  }
}

#undef PD_COLUMNS
