/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops all run over the units of a layer, which lie side by side in memory, so
 * that a compiler can use vector instructions without changing the order of any sum. A
 * pixel that is 0 adds nothing and is skipped: half of all pixels of clothes on black
 * ground.
 */
#include "mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOMENTUM 0.9F
#define PIXEL_SCALE (1.0F / 255.0F)

/* Nothing but floats, so that update and checksum may take it as one array. */
struct weights {
    float w1[MLP_PIXELS][MLP_HIDDEN];
    float b1[MLP_HIDDEN];
    float w2[MLP_HIDDEN][MLP_CLASSES];
    float b2[MLP_CLASSES];
};

#define N_WEIGHTS (sizeof(struct weights) / sizeof(float))

struct mlp {
    struct weights weights;
    struct weights gradient;
    struct weights velocity;
    float hidden[MLP_BATCH_MAX][MLP_HIDDEN];
    float d_hidden[MLP_BATCH_MAX][MLP_HIDDEN];
    float out[MLP_BATCH_MAX][MLP_CLASSES];
};

/* The next value of a linear congruential generator (Knuth, MMIX), in [-limit, limit). */
static float
draw(uint64_t *state, float limit)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((float)(*state >> 40) / (float)(1U << 23) - 1.0F) * limit;
}

struct mlp *
mlp_new(uint64_t seed)
{
    struct mlp *net = calloc(1, sizeof(*net));
    float *w1, *w2;

    if (!net)
        return NULL;
    w1 = &net->weights.w1[0][0];
    w2 = &net->weights.w2[0][0];
    for (size_t k = 0; k < (size_t)MLP_PIXELS * MLP_HIDDEN; k++)
        w1[k] = draw(&seed, sqrtf(6.0F / MLP_PIXELS));
    for (size_t k = 0; k < (size_t)MLP_HIDDEN * MLP_CLASSES; k++)
        w2[k] = draw(&seed, sqrtf(6.0F / MLP_HIDDEN));
    return net;
}

void
mlp_free(struct mlp *net)
{
    free(net);
}

/* hidden = relu(b1 + image * w1) for every image. */
static void
forward_hidden(struct mlp *net, const uint8_t *const *images, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++)
        memcpy(net->hidden[s], net->weights.b1, sizeof(net->weights.b1));
    for (uint32_t p = 0; p < MLP_PIXELS; p++) {
        const float *w = net->weights.w1[p];

        for (uint32_t s = 0; s < count; s++) {
            const float x = (float)images[s][p] * PIXEL_SCALE;
            float *h = net->hidden[s];

            if (images[s][p] == 0)
                continue;
            for (uint32_t k = 0; k < MLP_HIDDEN; k++)
                h[k] += x * w[k];
        }
    }
    for (uint32_t s = 0; s < count; s++)
        for (uint32_t k = 0; k < MLP_HIDDEN; k++)
            net->hidden[s][k] = net->hidden[s][k] > 0 ? net->hidden[s][k] : 0;
}

/* out = b2 + hidden * w2: the score of every class. */
static void
forward_out(struct mlp *net, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++) {
        float *out = net->out[s];

        memcpy(out, net->weights.b2, sizeof(net->weights.b2));
        for (uint32_t k = 0; k < MLP_HIDDEN; k++)
            for (uint32_t c = 0; c < MLP_CLASSES; c++)
                out[c] += net->hidden[s][k] * net->weights.w2[k][c];
    }
}

/* Turns scores into softmax - target, the gradient of the loss; returns the loss. */
static double
softmax_gradient(float *out, int64_t label, float scale)
{
    float top = out[0], sum = 0;
    double loss;

    for (uint32_t c = 1; c < MLP_CLASSES; c++)
        top = out[c] > top ? out[c] : top;
    for (uint32_t c = 0; c < MLP_CLASSES; c++)
        sum += expf(out[c] - top);
    loss = (double)(logf(sum) + top - out[label]);
    for (uint32_t c = 0; c < MLP_CLASSES; c++) {
        const float target = (int64_t)c == label ? 1.0F : 0.0F;

        out[c] = (expf(out[c] - top) / sum - target) * scale;
    }
    return loss;
}

/* From the gradient at the outputs to that of w2, b2 and of what entered the hidden
 * units. */
static void
backward_out(struct mlp *net, uint32_t count)
{
    struct weights *g = &net->gradient;

    for (uint32_t s = 0; s < count; s++) {
        const float *d_out = net->out[s];

        for (uint32_t c = 0; c < MLP_CLASSES; c++)
            g->b2[c] += d_out[c];
        for (uint32_t k = 0; k < MLP_HIDDEN; k++) {
            float sum = 0;

            for (uint32_t c = 0; c < MLP_CLASSES; c++) {
                g->w2[k][c] += net->hidden[s][k] * d_out[c];
                sum += net->weights.w2[k][c] * d_out[c];
            }
            net->d_hidden[s][k] = net->hidden[s][k] > 0 ? sum : 0;
        }
    }
}

/* From the gradient at the hidden units to that of w1 and b1. */
static void
backward_hidden(struct mlp *net, const uint8_t *const *images, uint32_t count)
{
    struct weights *g = &net->gradient;

    for (uint32_t s = 0; s < count; s++)
        for (uint32_t k = 0; k < MLP_HIDDEN; k++)
            g->b1[k] += net->d_hidden[s][k];
    for (uint32_t p = 0; p < MLP_PIXELS; p++) {
        float *w = g->w1[p];

        for (uint32_t s = 0; s < count; s++) {
            const float x = (float)images[s][p] * PIXEL_SCALE;
            const float *d = net->d_hidden[s];

            if (images[s][p] == 0)
                continue;
            for (uint32_t k = 0; k < MLP_HIDDEN; k++)
                w[k] += x * d[k];
        }
    }
}

float *
mlp_get_gradient(struct mlp *net, size_t *ret_n)
{
    *ret_n = N_WEIGHTS;
    return &net->gradient.w1[0][0];
}

void
mlp_update(struct mlp *net, float rate)
{
    float *w = &net->weights.w1[0][0];
    float *v = &net->velocity.w1[0][0];
    const float *g = &net->gradient.w1[0][0];

    for (size_t k = 0; k < N_WEIGHTS; k++) {
        v[k] = MOMENTUM * v[k] - rate * g[k];
        w[k] += v[k];
    }
}

double
mlp_find_gradient(struct mlp *net, const uint8_t *const *images, const int64_t *labels,
                  uint32_t count)
{
    double loss = 0;

    forward_hidden(net, images, count);
    forward_out(net, count);
    for (uint32_t s = 0; s < count; s++)
        loss += softmax_gradient(net->out[s], labels[s], 1.0F / (float)count);
    memset(&net->gradient, 0, sizeof(net->gradient));
    backward_out(net, count);
    backward_hidden(net, images, count);
    return loss;
}

void
mlp_get_arrays(struct mlp *net, struct mlp_array arrays[MLP_ARRAYS])
{
    static const char *const names[2][MLP_ARRAYS / 2] = {
        {"hidden.weight", "hidden.bias", "out.weight", "out.bias"},
        {"momentum.hidden.weight", "momentum.hidden.bias", "momentum.out.weight",
         "momentum.out.bias"}};
    struct weights *sets[2] = {&net->weights, &net->velocity};

    for (uint32_t k = 0; k < 2; k++) {
        struct mlp_array *at = arrays + k * MLP_ARRAYS / 2;

        at[0] = (struct mlp_array){names[k][0], sets[k]->w1[0], MLP_PIXELS, MLP_HIDDEN};
        at[1] = (struct mlp_array){names[k][1], sets[k]->b1, 1, MLP_HIDDEN};
        at[2] = (struct mlp_array){names[k][2], sets[k]->w2[0], MLP_HIDDEN, MLP_CLASSES};
        at[3] = (struct mlp_array){names[k][3], sets[k]->b2, 1, MLP_CLASSES};
    }
}

uint32_t
mlp_count_right(struct mlp *net, const uint8_t *const *images, const int64_t *labels,
                uint32_t count)
{
    uint32_t right = 0;

    forward_hidden(net, images, count);
    forward_out(net, count);
    for (uint32_t s = 0; s < count; s++) {
        uint32_t best = 0;

        for (uint32_t c = 1; c < MLP_CLASSES; c++)
            if (net->out[s][c] > net->out[s][best])
                best = c;
        right += (int64_t)best == labels[s];
    }
    return right;
}

uint64_t
mlp_checksum(const struct mlp *net)
{
    const unsigned char *bytes = (const unsigned char *)&net->weights;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t k = 0; k < sizeof(net->weights); k++)
        hash = (hash ^ bytes[k]) * UINT64_C(0x100000001b3);
    return hash;
}
