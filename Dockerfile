# docker build -t lockstep . && docker run --rm lockstep
# Builds Debian's packages, and installs them with LibTorch, a compiler and CMake: an image to train in, and to build programs in.
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends dpkg-dev git make
COPY . /lockstep
WORKDIR /lockstep
RUN XDG_CACHE_HOME=/cache make packages && mv /cache/lockstep/torch-*/torch /torch

FROM debian:12
COPY --from=build /lockstep/build/packages/*.deb /packages/
COPY --from=build /torch /opt/torch
RUN apt-get update && apt-get install -y --no-install-recommends /packages/*.deb g++ cmake ninja-build pkg-config && apt-get clean
WORKDIR /work
CMD ["lockstep", "demo"]
