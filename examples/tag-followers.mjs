/**
 * Adds a tag to every follower of the account. Needs Node 20 or newer and no packages:
 *
 *   CLIENT_ID=... CLIENT_SECRET=... API_KEY=... node tag-followers.mjs vip
 */
const { OA_URL = 'http://127.0.0.1:3000', CLIENT_ID, CLIENT_SECRET, API_KEY } = process.env
const credentials = { 'x-client-id': CLIENT_ID, 'x-client-secret': CLIENT_SECRET, 'x-api-key': API_KEY }
const [tag = 'vip'] = process.argv.slice(2)

async function call(method, path, { headers = {}, body } = {}) {
  const response = await fetch(OA_URL + path, {
    method,
    headers: { ...credentials, 'content-type': 'application/json', ...headers },
    body: body && JSON.stringify(body),
  })
  // 404: erased meanwhile. 412: changed by another client meanwhile.
  if ([404, 412].includes(response.status)) return null
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`)
  return response.json()
}

async function* followers() {
  for (let cursor = ''; cursor !== null; ) {
    const query = new URLSearchParams({ relationship: 'following', limit: 200, ...(cursor && { cursor }) })
    const page = await call('GET', `/api/audience?${query}`)
    if (page === null) throw new Error('the API key is not active')
    yield* page.data
    cursor = page.nextCursor
  }
}

let tagged = 0
for await (const { id, version, tags } of followers()) {
  if (tags.includes(tag)) continue
  // Update only the version that was read. Otherwise tags that another client has just added would be lost.
  const headers = { 'if-match': `"${version}"` }
  const updated = await call('PUT', `/api/audience/${id}`, { headers, body: { tags: [...tags, tag] } })
  if (updated !== null) tagged += 1
}
console.log(`${tagged} members tagged with ${tag}`)
