#!/usr/bin/env bash
# A virtual environment of Python 3.13.14 or newer from Debian, for packages that refuse the Python of this machine. Debian's
# testing release is laid into FOLDER/root; FOLDER/bin/python enters it and sees this repository and /tmp under their own paths.
# Usage, as root on Debian or Ubuntu: test/parts/newer-python.sh FOLDER
set -euo pipefail
folder=$(realpath -m "$1")
repository=$(realpath "$(dirname "$0")/../..")
root=$folder/root
command -v debootstrap > /dev/null || apt-get install -y debootstrap
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
mkdir -p "$folder/bin"
debootstrap --variant=minbase --include=python3.13-venv,ca-certificates testing "$root" "$mirror"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
mkdir -p "$root$repository"
cat > "$folder/bin/python" << EOF
#!/bin/sh
# Enters $root in a space of mounts of its own.
[ "\$1" = --inside ] || exec unshare --mount "\$0" --inside "\$PWD" "\$@"
place=\$2
shift 2
for shared in /proc /dev /sys /tmp "$repository"; do mount --rbind "\$shared" "$root\$shared"; done
exec chroot "$root" /bin/sh -c 'cd "\$0" && exec /opt/venv/bin/python "\$@"' "\$place" "\$@"
EOF
chmod +x "$folder/bin/python"
chroot "$root" python3.13 -m venv /opt/venv
"$folder/bin/python" -c 'import sys; assert sys.version_info >= (3, 13, 14), sys.version'
