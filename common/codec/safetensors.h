/* safetensors.h - the Hub's file format for tensors: u64 LE header length | JSON header | data.
 *
 * The reader is strict, because files come from strangers: the tensors must tile the data exactly
 * (no hole, no overlap, nothing left over), shapes must multiply to the stated bytes, and the
 * header must be a JSON object of limited size, depth and count, without duplicate keys. The
 * writer's output equals the reference implementation's: larger element types first, then by
 * name, and the header padded with blanks so that the data are 8-byte aligned.
 *
 * The file is read, not mapped: a file that is truncated or fails during a read is an error, not
 * a signal.
 *
 * owns     struct safetensors holds its file open; tensors are borrowed until safetensors_close()
 * threads  any number may read one struct safetensors
 * errors   E_CORRUPT for a malformed file; E_NOTFOUND, E_IO from the file system
 * source   github.com/huggingface/safetensors, "Format"
 */
#ifndef COMMON_CODEC_SAFETENSORS_H
#define COMMON_CODEC_SAFETENSORS_H

#include "common/base/buf.h"

enum {
    SAFETENSORS_MAX_HEADER = 100000000,
    SAFETENSORS_MAX_TENSORS = 200000,
    SAFETENSORS_MAX_NAME = 512,
    SAFETENSORS_MAX_RANK = 8,
};

enum st_dtype {
    ST_BOOL,
    ST_U8,
    ST_I8,
    ST_F8_E5M2,
    ST_F8_E4M3,
    ST_I16,
    ST_U16,
    ST_F16,
    ST_BF16,
    ST_I32,
    ST_U32,
    ST_F32,
    ST_F64,
    ST_I64,
    ST_U64
};

struct st_tensor {
    struct slice name;
    enum st_dtype dtype;
    int rank;
    uint64_t shape[SAFETENSORS_MAX_RANK];
    uint64_t begin; /* from the first data byte */
    uint64_t size_bytes;
};

struct safetensors;

/* `head` is the file's beginning and must hold the whole header; the data are not read. */
MUST_USE int safetensors_parse(struct slice head, uint64_t file_bytes, struct safetensors **out,
                               struct err *e);
MUST_USE int safetensors_open(const char *path, struct safetensors **out, struct err *e);
void safetensors_close(struct safetensors **sp); /* NULL is fine */

size_t safetensors_count(const struct safetensors *s);
const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i); /* sorted by name */
const struct st_tensor *safetensors_find(const struct safetensors *s, struct slice name);
uint64_t safetensors_header_bytes(const struct safetensors *s); /* before the first data byte */
/* Reads n of the tensor's bytes from offset `from`, of an opened file. */
MUST_USE int safetensors_read(const struct safetensors *s, const struct st_tensor *t, uint64_t from,
                              void *to, size_t n, struct err *e);

const char *st_dtype_name(enum st_dtype dt);

/* Sorts `t` into the order in which their data must follow the header, sets begin and size_bytes,
 * and appends the header. `format` is the metadata that transformers requires ("pt"); NULL omits
 * it. */
MUST_USE int safetensors_header(struct st_tensor *t, size_t n, const char *format, struct buf *out,
                                struct err *e);

#endif
