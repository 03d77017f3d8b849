// A real OpenID provider (npm oidc-provider) on loopback, for tests of `sealsum login`.
//
// node provider.mjs KEY.pem CERT.pem: prints {"issuer": …} once it listens. Whoever logs in as NAME has the
// groups that the name lists: `dpo+auditor` has cardio-dpo and cardio-auditor. SIGHUP rotates its signing keys.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import Provider from 'oidc-provider';
import MemoryAdapter from './node_modules/oidc-provider/lib/adapters/memory_adapter.js';

const [keyFile, certFile] = process.argv.slice(2);
const server = createServer({ key: readFileSync(keyFile), cert: readFileSync(certFile) });

// One memory for the provider before and after its keys are rotated.
class Memory extends MemoryAdapter {
  constructor(model) { super(model); }
}

function signingKeys() {
  const key = (type, options, alg) => ({
    ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg,
  });
  return { keys: [key('rsa', { modulusLength: 2048 }, 'RS256'), key('ec', { namedCurve: 'P-256' }, 'ES256')] };
}

function provider(issuer) {
  return new Provider(issuer, {
    adapter: Memory,
    jwks: signingKeys(),
    clients: [{
      client_id: 'sealsum-cli',
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      redirect_uris: ['http://127.0.0.1/callback'], // RFC 8252, 7.3: any port
      response_types: ['code'],
      grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
    }],
    cookies: { keys: ['not a secret: this provider lives for one test'] },
    pkce: { required: () => true },
    scopes: ['openid', 'offline_access'],
    ttl: { AccessToken: 40, AuthorizationCode: 60, DeviceCode: 120, Grant: 600, IdToken: 60, Interaction: 600, RefreshToken: 600, Session: 600 },
    extraTokenClaims: (ctx, token) => ({ groups: String(token.accountId).split('+').map((name) => `cardio-${name}`) }),
    features: {
      devInteractions: { enabled: true },
      deviceFlow: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: '', audience: resource, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
  });
}

server.listen(0, '127.0.0.1', () => {
  const issuer = `https://localhost:${server.address().port}`;
  let current = provider(issuer).callback();
  server.on('request', (request, response) => current(request, response));
  process.on('SIGHUP', () => { current = provider(issuer).callback(); console.log('{"rotated": true}'); });
  console.log(JSON.stringify({ issuer }));
});
