/* Files: writing to the disk begins before a file is complete. */
#define _GNU_SOURCE
#include "kernels.h"

#include <fcntl.h>

/* Has the system begin to write the bytes of the range to the disk, and does not wait for it; where there is no such
 * call, nothing. sync_file_range(2). */
EXPORT void file_start_writing(int32_t descriptor, int64_t offset, int64_t length) {
#ifdef SYNC_FILE_RANGE_WRITE
  (void)sync_file_range(descriptor, offset, length, SYNC_FILE_RANGE_WRITE);
#else
  (void)descriptor, (void)offset, (void)length;
#endif
}
