/* For NVRTC, which knows by itself what this header declares. */
