"""CUDA C++ of the workloads that no library of CuPy does in one pass: rows, Adam, stencil, transpose, CSR."""

LANES, HELD = 8, 4
"""Threads that share a row of the sparse matrix; vectors of a row that one thread holds in registers."""

BODY = r"""
typedef long long big;

__device__ float over_block(float v, bool largest) {  // the same value for every thread of the block
    __shared__ float part[32];
    for (int s = 16; s; s >>= 1) {
        float other = __shfl_xor_sync(0xFFFFFFFFu, v, s);
        v = largest ? fmaxf(v, other) : v + other;
    }
    __syncthreads();  // nobody reads the parts of the reduction before any more
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < blockDim.x >> 5; ++w) v = largest ? fmaxf(v, part[w]) : v + part[w];
    return v;
}

// One block a row, which stays in registers between its passes: x and y are touched once.
extern "C" __global__ void softmax(const float4* x, float4* y, int vectors) {
    float4 v[HELD];
    const float4* row = x + (big)blockIdx.x * vectors;
    float top = -3.402823466e38f, total = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; ++k)
        if (int i = threadIdx.x + k * blockDim.x; i < vectors) {
            v[k] = row[i];
            top = fmaxf(top, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
        }
    top = over_block(top, true);
#pragma unroll
    for (int k = 0; k < HELD; ++k)
        if (int i = threadIdx.x + k * blockDim.x; i < vectors) {
            v[k] = make_float4(__expf(v[k].x - top), __expf(v[k].y - top),
                               __expf(v[k].z - top), __expf(v[k].w - top));
            total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
        }
    float f = 1.0f / over_block(total, false);
#pragma unroll
    for (int k = 0; k < HELD; ++k)
        if (int i = threadIdx.x + k * blockDim.x; i < vectors)
            y[(big)blockIdx.x * vectors + i] = make_float4(v[k].x * f, v[k].y * f, v[k].z * f, v[k].w * f);
}

extern "C" __global__ void layernorm(const float4* x, float4* y, const float4* gain, const float4* bias,
                                     int vectors, float epsilon) {
    float4 v[HELD];
    const float4* row = x + (big)blockIdx.x * vectors;
    float sum = 0.0f, squares = 0.0f, items = 4.0f * vectors;
#pragma unroll
    for (int k = 0; k < HELD; ++k)
        if (int i = threadIdx.x + k * blockDim.x; i < vectors) {
            v[k] = row[i];
            sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
        }
    float mean = over_block(sum, false) / items;
#pragma unroll
    for (int k = 0; k < HELD; ++k)
        if (int i = threadIdx.x + k * blockDim.x; i < vectors) {
            v[k] = make_float4(v[k].x - mean, v[k].y - mean, v[k].z - mean, v[k].w - mean);
            squares += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
        }
    float f = rsqrtf(over_block(squares, false) / items + epsilon);
#pragma unroll
    for (int k = 0; k < HELD; ++k)
        if (int i = threadIdx.x + k * blockDim.x; i < vectors) {
            float4 g = gain[i], b = bias[i];
            y[(big)blockIdx.x * vectors + i] = make_float4(v[k].x * f * g.x + b.x, v[k].y * f * g.y + b.y,
                                                           v[k].z * f * g.z + b.z, v[k].w * f * g.w + b.w);
        }
}

extern "C" __global__ void adam(float4* p, const float4* g, float4* m, float4* v, big vectors,
                                float keep1, float take1, float keep2, float take2,
                                float scale, float correction, float small) {
    auto step = [=](float& p, float g, float& m, float& v) {
        m = keep1 * m + take1 * g;
        v = keep2 * v + take2 * g * g;
        p = p - scale * m / (correction * sqrtf(v) + small);
    };
    big i = (big)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    float4 a = p[i], b = g[i], d = m[i], e = v[i];
    step(a.x, b.x, d.x, e.x);
    step(a.y, b.y, d.y, e.y);
    step(a.z, b.z, d.z, e.z);
    step(a.w, b.w, d.w, e.w);
    p[i] = a, m[i] = d, v[i] = e;
}

// A block walks up a column of planes: the plane below, this one and the one above stay in registers.
extern "C" __global__ void stencil(const double* u, double* v, int n, int planes,
                                   double centre, double neighbour) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int first = blockIdx.z * planes, wide = n + 2;
    if (x >= n || y >= n) return;
    big layer = (big)wide * wide;
    const double* at = u + (first + 1) * layer + (big)(y + 1) * wide + x + 1;
    double below = at[-layer], here = at[0];
    for (int z = first; z < first + planes && z < n; ++z, at += layer) {
        double above = at[layer];
        double around = (below + above) + (at[-wide] + at[wide]) + (at[-1] + at[1]);
        v[((big)z * n + y) * n + x] = centre * here + neighbour * around;
        below = here, here = above;
    }
}

extern "C" __global__ void transpose(const double* a, double* b, int n) {
    __shared__ double tile[32][33];  // the odd pitch spreads a column over all banks
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (x < n && y + k < n) tile[threadIdx.y + k][threadIdx.x] = a[(big)(y + k) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (x < n && y + k < n) b[(big)(y + k) * n + x] = tile[threadIdx.x][threadIdx.y + k];
}

// Row pointers and columns of the 27-point operator on a periodic cube.
extern "C" __global__ void connect(int* pointer, int* column, int edge) {
    int n = edge * edge * edge, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > n) return;
    pointer[i] = 27 * i;
    if (i == n) return;
    int z = i / (edge * edge), y = i / edge % edge, x = i % edge, place = 27 * i;
    for (int dz = -1; dz < 2; ++dz)
        for (int dy = -1; dy < 2; ++dy)
            for (int dx = -1; dx < 2; ++dx)
                column[place++] = ((z + dz + edge) % edge * edge + (y + dy + edge) % edge) * edge
                                  + (x + dx + edge) % edge;
}

// LANES threads a row: neighbours load neighbouring entries.
extern "C" __global__ void spmv(const int* pointer, const int* column, const double* value, const double* x,
                                double* y, int n) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    double sum = 0.0;
    if (row < n)
        for (int k = pointer[row] + lane, end = pointer[row + 1]; k < end; k += LANES)
            sum += value[k] * x[column[k]];
    for (int s = LANES / 2; s; s >>= 1) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, s);
    if (row < n && lane == 0) y[row] = sum;
}
"""

CODE = f"#define LANES {LANES}\n#define HELD {HELD}\n{BODY}"
