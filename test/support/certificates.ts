/** Certificates of an authority that only the tests trust. Node.js makes none, so openssl does. */
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryDirectory } from './process.ts'

const isInstalled = spawnSync('openssl', ['version']).status === 0
const CONFIGURATION = `
[ca]
default_ca = tests
[tests]
new_certs_dir = .
database = index.txt
default_md = sha256
policy = any
copy_extensions = copy
rand_serial = yes
unique_subject = no
[any]
commonName = supplied
`

/** False without openssl. The run then reports what it does not test. */
export function canMakeCertificates(untested: string): boolean {
  if (isInstalled) return true
  console.warn(`\n!!! openssl is not installed: ${untested} NOT tested (apt-get install openssl)\n`)
  return false
}

export interface Certificate {
  key: string
  cert: string
}

export function makeAuthority() {
  const directory = temporaryDirectory()
  const path = (name: string) => join(directory, name)
  const read = (name: string) => readFileSync(path(name), 'utf8')
  const openssl = (...args: string[]) => {
    const { status, stderr } = spawnSync('openssl', args, { cwd: directory, encoding: 'utf8' })
    if (status !== 0) throw new Error(stderr)
  }
  const request = (name: string, extension: string, ...args: string[]) =>
    openssl(
      ...['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', `/CN=${name}`],
      ...['-addext', extension, '-keyout', `${name}.key`, ...args],
    )
  const sign = (name: string, by: string, [from, to]: [number, number]) =>
    openssl(
      ...['ca', '-batch', '-notext', '-config', 'ca.cnf', '-cert', `${by}.pem`, '-keyfile', `${by}.key`],
      ...['-in', `${name}.csr`, '-out', `${name}.pem`, '-startdate', timeIn(from), '-enddate', timeIn(to)],
    )
  writeFileSync(path('ca.cnf'), CONFIGURATION)
  writeFileSync(path('index.txt'), '')
  const isAuthority = 'basicConstraints=critical,CA:TRUE'
  request('authority', 'keyUsage=keyCertSign', '-x509', '-out', 'authority.pem')
  request('intermediate', isAuthority, '-new', '-out', 'intermediate.csr')
  sign('intermediate', 'authority', [-1, 30])
  return {
    authority: read('authority.pem'),
    /** of an authority that the first one certified */
    intermediate: read('intermediate.pem'),
    /** @param days when it begins and ends, from now */
    issue: (
      name: string,
      days: [from: number, to: number] = [-1, 90],
      by: 'authority' | 'intermediate' = 'authority',
    ): Certificate => {
      request(name, `subjectAltName=DNS:${name}`, '-new', '-out', `${name}.csr`)
      sign(name, by, days)
      return { key: read(`${name}.key`), cert: read(`${name}.pem`) }
    },
    selfSigned: (name: string): Certificate => {
      request(name, `subjectAltName=DNS:${name}`, '-x509', '-out', `${name}.pem`)
      return { key: read(`${name}.key`), cert: read(`${name}.pem`) }
    },
  }
}

/** In the form of openssl, YYYYMMDDHHMMSSZ. */
const timeIn = (days: number) =>
  new Date(Date.now() + days * 86_400_000).toISOString().replace(/[-:T]|\.\d+/g, '')
