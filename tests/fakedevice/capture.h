/* Stream capture: a stream that is being captured, and those that join it by waiting for its events, make nodes of a
 * graph instead of running. Lock held. */
#ifndef PP_FAKE_CAPTURE_H
#define PP_FAKE_CAPTURE_H

#include "stream.h"

struct pp_fake_capture;

/* Calls that a capture going on makes illegal ("potentially unsafe": allocation, synchronisation, queries) ask here
 * first; cudaSuccess where they are not. The capture is invalid afterwards. */
cudaError_t pp_fake_capture_forbids(struct pp_fake_host *host, const char *what);
/* The same for calls that name a stream: error where that stream is being captured. */
cudaError_t pp_fake_capture_forbids_stream(struct CUstream_st *stream, const char *what);

/* An operation of a stream that is being captured becomes a node; takes the operation. */
cudaError_t pp_fake_capture_add(struct CUstream_st *stream, struct pp_fake_operation *operation);
/* The next operation of the stream comes after the last one of the capture of which this was said: after its start, or
 * with drivers older than 12.9 its end. */
void pp_fake_capture_order(struct CUstream_st *stream);
/* cudaEventRecord on, and cudaStreamWaitEvent by or for, a stream that is being captured. */
cudaError_t pp_fake_capture_record(struct CUstream_st *stream, struct pp_fake_record *record);
cudaError_t pp_fake_capture_wait(struct CUstream_st *stream, struct pp_fake_record *record);

/* Does it still go on, without an error so far? */
bool pp_fake_capture_valid(const struct pp_fake_capture *capture);

#endif
