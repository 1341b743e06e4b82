# docker build -t tlkit . && docker run --rm -p 127.0.0.1:8888:8888 tlkit
# JupyterLab prints an address with its token; open that. To keep your work: -v tlkit-home:/home/student
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
ENV PATH="/srv/venv/bin:$PATH"
WORKDIR /srv/course
# The large packages first, so that a changed lesson does not install them anew.
COPY constraints.txt ./
RUN python -m venv /srv/venv && pip install -q --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch
COPY . .
RUN pip install -q --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt -e ".[lab,qlora,serve,demo]"
RUN useradd --create-home student
USER student
RUN python -m tlkit doctor
EXPOSE 8888
# The original stays as it is and belongs to root; everyone works in a copy of their own.
CMD ["sh", "-c", "test -d ~/course || cp -r /srv/course ~/course; cd ~/course && exec python -m jupyterlab --ip=0.0.0.0 --no-browser notebooks/00_index.ipynb"]
