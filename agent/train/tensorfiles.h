/* tensorfiles.h - plans which tensors go into which safetensors files, and writes the files.
 *
 * Whole tensors are in the Hub's form: one file, or several with an index. Slices of tensors
 * (region.h) are in our order of rows, 1-D, in one file per rank. Everything is f32. Next to each
 * file is a chunk list, <file>.chunks (digest.h): the digests of each 8 MiB, so that a reader can
 * verify only the part that it needs.
 *
 * Writing does not use the model, so a thread can write from a copy while training continues.
 *
 * owns     the names; sources and the layout are borrowed
 * threads  one at a time
 * errors   the file system's; a source's
 */
#ifndef AGENT_TRAIN_TENSORFILES_H
#define AGENT_TRAIN_TENSORFILES_H

#include <limits.h>

#include "agent/train/region.h"
#include "common/base/buf.h"
#include "common/hash/digest.h"

/* A set of tensors (parameters, a moment), and the prefix of its names: read() copies n elements
 * from index `offset` of the whole. */
struct tensor_source {
    const char *prefix;
    int (*read)(void *arg, int64_t offset, int64_t n, float *out, struct err *e);
    void *arg;
};

/* A slice, and the index of its first element in the whole. */
struct tensor_slice {
    int hub;
    struct region region;
    int64_t offset;
};

struct tensor_files;

/* Files beyond this size are split, as on the Hub; and several ranks each write at least the
 * other size. */
#define TENSOR_FILE_MOST_BYTES  (UINT64_C(5) * 1000 * 1000 * 1000)
#define TENSOR_FILE_LEAST_BYTES (UINT64_C(16) << 20)

/* All tensors of each source, whole, in files of about the same size: one for each of so many
 * writers; fewer, if they would be small; more, if a file would be larger than most_bytes. Writer
 * i % writers writes file number i. */
void tensor_files_whole(const struct layout *l, const struct tensor_source *source, size_t sources,
                        const char *base, int writers, uint64_t least_bytes, uint64_t most_bytes,
                        struct tensor_files **out);
/* One file of slices of each source: that of rank `rank`. */
void tensor_files_slices(const struct layout *l, const struct tensor_slice *slice, size_t slices,
                         const struct tensor_source *source, size_t sources, const char *base,
                         int rank, int ranks, struct tensor_files **out);
void tensor_files_close(struct tensor_files **fp); /* NULL is fine */

size_t tensor_files_count(const struct tensor_files *f);
void tensor_files_name(const struct tensor_files *f, size_t file, char out[NAME_MAX]);
/* The file that has a tensor of the first source. */
size_t tensor_files_of(const struct tensor_files *f, int hub);
/* Writes and syncs one of them and its chunk list, in a folder that no reader sees yet. */
MUST_USE int tensor_files_write(const struct tensor_files *f, size_t file, const char *dir,
                                struct err *e);
/* The index; nothing if the files need none. */
void tensor_files_index(const struct tensor_files *f, char name[NAME_MAX], struct buf *out);

/* Of a rank's file of slices. */
void tensor_slices_name(const char *base, int rank, int ranks, char out[NAME_MAX]);

#define CHUNK_LIST_SUFFIX ".chunks"
enum { CHUNK_LIST_MAX_BYTES = 64 << 20 };

/* The list of the file at `path`, all bytes of which have passed through the hasher. Written
 * after the file: if the list exists, the file is complete. */
MUST_USE int chunk_list_write(const char *path, struct hasher *hash, struct err *e);

#endif
