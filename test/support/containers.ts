/** Images and containers by podman. `.ci/containers` installs it, and makes stand-ins for the base images. */
import { execFile, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { onTestFinished } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BASE = 'docker.io/library/node:24-slim'
/** Certificate authorities of this machine. A proxy before npm's registry may have one of its own. */
const AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt'

/** False without podman or the base image. The run then reports what it does not test. */
export function canRunContainers(untested: string): boolean {
  if (spawnSync('podman', ['image', 'exists', BASE]).status === 0) return true
  console.warn(`\n!!! podman or the image ${BASE} is missing: ${untested} NOT tested (.ci/containers)\n`)
  return false
}

/** Runs podman, and returns what it prints. Rejects with its errors if it fails. */
export async function podman(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('podman', args, { maxBuffer: 16 * 1024 * 1024 })
  return stdout.trim()
}

/** How a command ended that may fail. */
export function attempt(...args: string[]): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync('podman', args, { encoding: 'utf8' })
  return { status, output: stdout + stderr }
}

/** Builds the Dockerfile of this checkout. Unlike OCI's, Docker's format keeps the health check. */
export async function buildImage(name: string, ...args: string[]): Promise<void> {
  const npmrc = join(mkdtempSync(join(tmpdir(), 'oa-audience-npmrc-')), 'npmrc')
  writeFileSync(npmrc, `cafile=${AUTHORITIES}\n`)
  const { stdout: cache } = await promisify(execFile)('npm', ['config', 'get', 'cache'])
  const volumes = existsSync(AUTHORITIES)
    ? [`${npmrc}:/root/.npmrc:ro`, `${AUTHORITIES}:${AUTHORITIES}:ro`, `${cache.trim()}:/root/.npm`]
    : [`${cache.trim()}:/root/.npm`]
  const options = ['--format', 'docker', '--network', 'host', ...volumes.flatMap((volume) => ['-v', volume])]
  await podman('build', '--quiet', ...options, ...args, '--tag', name, ROOT)
}

/** Starts a container with a read-only file system and without capabilities. It is removed when the test ends. */
export async function runContainer(image: string, ...args: string[]): Promise<{ id: string; url: string }> {
  const hardened = ['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges']
  const id = await podman('run', '--detach', '--publish', '127.0.0.1::3000', ...hardened, ...args, image)
  onTestFinished(() => void attempt('rm', '--force', '--time', '0', id))
  return { id, url: await urlOfContainer(id) }
}

/** The port changes with every start. A container in the network of the host has none. */
export const urlOfContainer = async (id: string) => `http://${attempt('port', id, '3000/tcp').output.trim()}`
