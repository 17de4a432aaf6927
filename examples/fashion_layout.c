/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks Fashion-MNIST as it is distributed (four gzipped IDX files) into what
 * train_fashion reads:
 *
 *     DIR/train/<class>/<number>.pgm     60,000 grey images, one file each, as image viewers
 *                                        and torchvision's ImageFolder read them
 *     DIR/test-images.idx3-ubyte         10,000 images in one file, only unpacked
 *     DIR/test-labels.idx1-ubyte
 *
 * Class folders begin with the class number, so that sorting them keeps the labels. Every
 * file that is there is read and compared; only what is missing or differs is written, so
 * a second run is a check.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define TRAIN_SAMPLES 60000
#define TEST_SAMPLES 10000
#define PIXELS 784
#define CLASSES 10
#define IMAGES_HEADER 16 /* of the IDX file: magic, count, rows, columns */
#define LABELS_HEADER 8
#define PATH_BYTES 1024

static const char pgm_header[] = "P5\n28 28\n255\n";
static const char *const class_names[CLASSES] = {
    "0-t-shirt", "1-trouser", "2-pullover", "3-dress", "4-coat",
    "5-sandal",  "6-shirt",   "7-sneaker",  "8-bag",   "9-ankle-boot",
};

struct counts {
    unsigned written;
    unsigned kept;
};

static int
complain(const char *path, const char *what)
{
    fprintf(stderr, "fashion_layout: %s: %s\n", path, what);
    return -1;
}

/* Unpacks source/name, which must hold exactly n_bytes. Returns owned, or NULL. */
static uint8_t *
unpack(const char *source, const char *name, unsigned n_bytes)
{
    char path[PATH_BYTES];
    uint8_t *bytes = malloc((size_t)n_bytes + 1);
    gzFile file;
    int got;

    snprintf(path, sizeof(path), "%s/%s", source, name);
    file = gzopen(path, "rb");
    if (!file || !bytes) {
        complain(path, file ? "no memory" : "cannot be opened; it is in dataset-fashion-mnist");
        if (file)
            (void)gzclose(file); /* nothing was written */
        free(bytes);
        return NULL;
    }
    got = gzread(file, bytes, n_bytes + 1);
    (void)gzclose(file); /* nothing was written */
    if (got != (int)n_bytes) {
        complain(path, "is damaged or another data set");
        free(bytes);
        return NULL;
    }
    return bytes;
}

/* Says whether the file holds exactly these bytes. */
static int
file_equals(const char *path, const uint8_t *bytes, size_t n_bytes)
{
    uint8_t there[2048];
    size_t done = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    while ((got = read(fd, there, sizeof(there))) > 0) {
        if ((size_t)got > n_bytes - done || memcmp(there, bytes + done, (size_t)got) != 0)
            break;
        done += (size_t)got;
    }
    close(fd);
    return got == 0 && done == n_bytes;
}

static int
put_file(const char *path, const uint8_t *bytes, size_t n_bytes, struct counts *counts)
{
    size_t done = 0;
    int fd;

    if (file_equals(path, bytes, n_bytes)) {
        counts->kept++;
        return 0;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return complain(path, strerror(errno));
    while (done < n_bytes) {
        ssize_t put = write(fd, bytes + done, n_bytes - done);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            complain(path, strerror(errno));
            close(fd);
            return -1;
        }
        done += (size_t)put;
    }
    if (close(fd) < 0)
        return complain(path, strerror(errno));
    counts->written++;
    return 0;
}

static int
make_folder(const char *path)
{
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return complain(path, strerror(errno));
    return 0;
}

static int
make_folders(const char *target)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof(path), "%s/train", target);
    if (make_folder(target) < 0 || make_folder(path) < 0)
        return -1;
    for (int k = 0; k < CLASSES; k++) {
        snprintf(path, sizeof(path), "%s/train/%s", target, class_names[k]);
        if (make_folder(path) < 0)
            return -1;
    }
    return 0;
}

static int
put_images(const char *target, const uint8_t *images, const uint8_t *labels, struct counts *counts)
{
    const size_t header_bytes = sizeof(pgm_header) - 1;
    uint8_t file[sizeof(pgm_header) - 1 + PIXELS];
    char path[PATH_BYTES];

    memcpy(file, pgm_header, header_bytes);
    for (size_t k = 0; k < TRAIN_SAMPLES; k++) {
        if (labels[k] >= CLASSES)
            return complain("train-labels-idx1-ubyte.gz", "a label is above 9");
        memcpy(file + header_bytes, images + k * PIXELS, PIXELS);
        snprintf(path, sizeof(path), "%s/train/%s/%05zu.pgm", target, class_names[labels[k]], k);
        if (put_file(path, file, sizeof(file), counts) < 0)
            return -1;
    }
    return 0;
}

static int
lay_out_train(const char *source, const char *target, struct counts *counts)
{
    uint8_t *images =
        unpack(source, "train-images-idx3-ubyte.gz", IMAGES_HEADER + TRAIN_SAMPLES * PIXELS);
    uint8_t *labels = unpack(source, "train-labels-idx1-ubyte.gz", LABELS_HEADER + TRAIN_SAMPLES);
    int rc = -1;

    if (images && labels)
        rc = put_images(target, images + IMAGES_HEADER, labels + LABELS_HEADER, counts);
    free(labels);
    free(images);
    return rc;
}

static int
lay_out_one(const char *source, const char *packed, const char *target, unsigned n_bytes,
            struct counts *counts)
{
    uint8_t *bytes = unpack(source, packed, n_bytes);
    int rc = -1;

    if (bytes)
        rc = put_file(target, bytes, n_bytes, counts);
    free(bytes);
    return rc;
}

static int
lay_out_test(const char *source, const char *target, struct counts *counts)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof(path), "%s/test-images.idx3-ubyte", target);
    if (lay_out_one(source, "t10k-images-idx3-ubyte.gz", path,
                    IMAGES_HEADER + TEST_SAMPLES * PIXELS, counts) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/test-labels.idx1-ubyte", target);
    return lay_out_one(source, "t10k-labels-idx1-ubyte.gz", path, LABELS_HEADER + TEST_SAMPLES,
                       counts);
}

int
main(int argc, char **argv)
{
    struct counts counts = {0};

    if (argc != 3) {
        fprintf(stderr, "usage: fashion_layout /usr/share/datasets/fashion-mnist DIR\n");
        return 2;
    }
    if (strlen(argv[1]) > PATH_BYTES - 64 || strlen(argv[2]) > PATH_BYTES - 64) {
        complain("a path", "is too long");
        return 2;
    }
    if (make_folders(argv[2]) < 0 || lay_out_train(argv[1], argv[2], &counts) < 0 ||
        lay_out_test(argv[1], argv[2], &counts) < 0)
        return 1;
    printf("%s: %u files written, %u were there and are right\n", argv[2], counts.written,
           counts.kept);
    return 0;
}
