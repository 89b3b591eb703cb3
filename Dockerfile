# Topdown's main job in a container, as a user who is not root; see docs/container.md.
#
#   docker build --tag topdown .
#   docker run --rm --volume topdown-output:/srv/topdown/output topdown

# By its digest, which alone counts; the name before it says what it is. See docs/container.md for a newer one.
ARG PYTHON=python:3.13-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6

FROM ${PYTHON} AS build
WORKDIR /build
COPY requirements/build.lock requirements/run.lock requirements/
# The environment gets no pip of its own: nothing that installs goes into the image.
RUN python3 -m venv tools \
 && python3 -m venv --without-pip /opt/topdown \
 && tools/bin/pip install --no-cache-dir --require-hashes -r requirements/build.lock \
 && tools/bin/pip --python /opt/topdown/bin/python3 install --no-cache-dir --require-hashes -r requirements/run.lock
COPY pyproject.toml README.md LICENSE ./
COPY topdown topdown
RUN tools/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheel . \
 && tools/bin/pip --python /opt/topdown/bin/python3 install --no-cache-dir --no-deps --no-index wheel/*.whl

FROM ${PYTHON}
# The folder of the volume belongs to the user: a new volume takes over its owner and mode.
RUN groupadd --gid 10001 topdown \
 && useradd --uid 10001 --gid topdown --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin topdown \
 && install --directory --owner topdown --group topdown --mode 0700 /srv/topdown/output
COPY --from=build /opt/topdown /opt/topdown
COPY LICENSE /srv/topdown/
COPY data /srv/topdown/data
COPY pipelines /srv/topdown/pipelines
ENV PATH=/opt/topdown/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /srv/topdown
VOLUME /srv/topdown/output
# By number: a host that refuses root can see that this is another.
USER 10001:10001
ENTRYPOINT ["topdown"]
CMD ["run", "pipelines/us_counties.toml"]
